// Dropout: which elements fall is a pure function of (seed, stream, global index), so nothing is saved.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

struct DropoutOp {
  static constexpr std::string_view kName = "dropout";
  DropoutKey key;

  Tensor forward(Context& context, const Tensor& x) { return drop(context, x); }
  Tensor backward(Context& context, const Tensor& dy) { return drop(context, dy); }

 private:
  Tensor drop(Context& context, const Tensor& x) const {
    Tensor y = context.empty_like(x);
    context.kernels.dropout(context.stream, y, x, key);
    return y;
  }
};

inline Var dropout(const Var& x, const DropoutKey& key) { return key.p > 0 ? apply(*x.context, DropoutOp{key}, x) : x; }

}  // namespace weft
