// Reshape: the same bytes under another shape.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

struct ReshapeOp {
  static constexpr std::string_view kName = "reshape";
  Shape shape;
  Shape before = {};

  Tensor forward(Context&, const Tensor& x) {
    before = x.shape();
    return x.reshape(shape);
  }
  Tensor backward(Context&, const Tensor& dy) { return dy.reshape(before); }
};

inline Var reshape(const Var& x, Shape shape) { return apply(*x.context, ReshapeOp{shape}, x); }

}  // namespace weft
