// Dropout: which elements fall is a pure function of (seed, stream, global index), so nothing is saved.
#pragma once
#include <span>

#include "weft/autograd/tape.h"

namespace weft {

// A run of tokens of one rank: rows [begin, begin + count) here are tokens first_token and following of the whole.
struct TokenSpan {
  int64_t begin = 0, count = 0, first_token = 0;
};

// x[rows, H], of which row 0 is token `first_row` of those that the spans list.
struct DropoutOp {
  static constexpr std::string_view kName = "dropout";
  DropoutKey key;                    // `first` is left to the op
  std::span<const TokenSpan> spans;  // ascending and without gaps; host memory that outlives the tape
  int64_t first_row = 0;

  Tensor forward(Context& context, const Tensor& x) { return drop(context, x); }
  Tensor backward(Context& context, const Tensor& dy) { return drop(context, dy); }

 private:
  Tensor drop(Context& context, const Tensor& x) const {
    Tensor y = context.empty_like(x);
    const int64_t end_row = first_row + x.rows();
    int64_t done = 0;
    for (const TokenSpan& s : spans) {
      const int64_t begin = std::max(s.begin, first_row), end = std::min(s.begin + s.count, end_row);
      if (begin >= end) continue;
      DropoutKey part = key;
      part.first = uint64_t(s.first_token + begin - s.begin) * uint64_t(x.cols());
      context.kernels.dropout(context.stream, y.slice_rows(begin - first_row, end - begin),
                              x.slice_rows(begin - first_row, end - begin), part);
      done += end - begin;
    }
    check(done == x.rows(), "dropout: the pass says where {} of {} tokens stand", done, x.rows());
    return y;
  }
};

}  // namespace weft
