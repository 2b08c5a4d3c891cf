// gradient_or_zeros: what a collective op's backward goes on with when nothing used its output on this rank.
#pragma once
#include "weft/autograd/context.h"

namespace weft {

inline Tensor gradient_or_zeros(Context& context, const Tensor& dy, DType dtype, const Shape& shape) {
  if (dy) return dy;
  Tensor zeros = context.empty(dtype, shape);
  context.kernels.fill(context.stream, zeros, 0);
  return zeros;
}
inline Tensor gradient_or_zeros(Context& context, const Tensor& dy, const Tensor& y) {
  return gradient_or_zeros(context, dy, y.dtype(), y.shape());
}

}  // namespace weft
