// Narrow products: the calls of matmul.
#include "weft/autograd/ops/narrow_products.h"

#include "weft/autograd/ops/own.h"

namespace weft {

Tensor in_dtype(Context& context, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = context.empty(dtype, x.shape());
  context.kernels.convert(context.stream, y, x);
  return y;
}

Tensor times_transposed(Context& context, const Tensor& x, Param& w) {
  Tensor y = context.empty(x.dtype(), {x.rows(), w.shape[0]});
  context.kernels.matmul(
      context.stream,
      {.y = y, .a = as_matrix(x), .b = w.value, .transpose_b = true, .packed_b = w.packed(context, true)});
  return y;
}

Tensor times(Context& context, const Tensor& dy, Param& w) {
  Tensor dx = context.empty(dy.dtype(), {dy.rows(), w.shape[1]});
  context.kernels.matmul(context.stream,
                         {.y = dx, .a = as_matrix(dy), .b = w.value, .packed_b = w.packed(context, false)});
  return dx;
}

Tensor plus_times_transposed(Context& context, const Tensor& y, const Tensor& x, Param& w) {
  Tensor sum = own(context, y);
  context.kernels.matmul(context.stream, {.y = as_matrix(sum),
                                          .a = x,
                                          .b = w.value,
                                          .transpose_b = true,
                                          .accumulate = true,
                                          .packed_b = w.packed(context, true)});
  return sum;
}

void add_gradient(Context& context, Param& w, const Tensor& dy, const Tensor& x) {
  if (!w.trainable) return;
  context.kernels.matmul(
      context.stream,
      {.y = w.grad, .a = as_matrix(dy), .b = as_matrix(x), .transpose_a = true, .accumulate = w.accumulate_next()});
}

}  // namespace weft
