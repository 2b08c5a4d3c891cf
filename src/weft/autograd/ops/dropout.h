// Dropout: which elements fall is a pure function of (seed, stream, global index), so nothing is saved.
#pragma once
#include <span>

#include "weft/autograd/tape.h"

namespace weft {

// A run of tokens of one rank: rows [begin, begin + count) here are tokens first_token and following of the whole.
struct TokenSpan {
  int64_t begin = 0, count = 0, first_token = 0;
};

// Dropout of rows: one after the other from key.first on, or, with spans, row t of a span as token
// first_token + t - begin behind key.first.
struct RowDropout {
  DropoutKey key;
  std::span<const TokenSpan> spans = {};  // outlive the tape
};

struct DropoutOp {
  static constexpr std::string_view kName = "dropout";
  RowDropout rows;

  Tensor forward(Context& context, const Tensor& x) { return drop(context, x); }
  Tensor backward(Context& context, const Tensor& dy) { return drop(context, dy); }

 private:
  Tensor drop(Context& context, const Tensor& x) const {
    Tensor y = context.empty_like(x);
    if (rows.spans.empty()) context.kernels.dropout(context.stream, y, x, rows.key);
    for (const TokenSpan& span : rows.spans) {
      DropoutKey key = rows.key;
      key.first += uint64_t(span.first_token * (x.numel() / x.dim(0)));
      context.kernels.dropout(context.stream, y.slice_rows(span.begin, span.count),
                              x.slice_rows(span.begin, span.count), key);
    }
    return y;
  }
};

inline Var dropout(const Var& x, const RowDropout& rows) {
  return rows.key.p > 0 ? apply(*x.context, DropoutOp{rows}, x) : x;
}

}  // namespace weft
