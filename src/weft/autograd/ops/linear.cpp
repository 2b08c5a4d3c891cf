// Linear: the three matrix products of a weight.
#include "weft/autograd/ops/linear.h"

#include "weft/autograd/ops/narrow_products.h"

namespace weft {

Tensor linear_output(Context& context, const Tensor& x, const LinearWeights& w) {
  check(x.cols() == w.weight->shape[1], "{}: the input has {} features, the weight expects {}", w.weight->name,
        x.cols(), w.weight->shape[1]);
  Shape shape = x.shape();
  shape[-1] = w.weight->shape[0];
  return context.empty(x.dtype(), shape);
}

MatmulArgs linear_product(Context& context, const Tensor& y, const Tensor& x, const LinearWeights& w,
                          Epilogue epilogue) {
  if (w.bias) epilogue.bias = w.bias->value;
  return {.y = as_matrix(y),
          .a = as_matrix(x),
          .b = w.weight->value,
          .transpose_b = true,
          .float8 = w.weight->in_float8,
          .packed_b = w.weight->packed(context, true),
          .nf4_b = w.weight->nf4(),
          .blocks_b = w.weight->blocks(),
          .epilogue = std::move(epilogue)};
}

Tensor linear_forward(Context& context, const Tensor& x, const LinearWeights& w, Epilogue epilogue) {
  Tensor y = linear_output(context, x, w);
  context.kernels.matmul(context.stream, linear_product(context, y, x, w, std::move(epilogue)));
  return y;
}

void linear_backward_input(Context& context, const Tensor& dx, const Tensor& dy, const LinearWeights& w,
                           bool accumulate, Epilogue epilogue) {
  context.kernels.matmul(context.stream, {.y = as_matrix(dx),
                                          .a = as_matrix(dy),
                                          .b = w.weight->value,
                                          .accumulate = accumulate,
                                          .float8 = w.weight->in_float8,
                                          .packed_b = w.weight->packed(context, false),
                                          .nf4_b = w.weight->nf4(),
                                          .epilogue = std::move(epilogue)});
}

void linear_backward_weight(Context& context, const Tensor& dy, const Tensor& x, const LinearWeights& w) {
  if (w.weight->trainable)
    context.kernels.matmul(context.stream, {.y = w.weight->grad,
                                            .a = as_matrix(dy),
                                            .b = as_matrix(x),
                                            .transpose_a = true,
                                            .accumulate = w.weight->accumulate_next(),
                                            .float8 = w.weight->in_float8});
  if (w.bias && w.bias->trainable)
    context.kernels.sum_rows(context.stream, w.bias->grad, as_matrix(dy), w.bias->accumulate_next());
}

Tensor WideLinearOp::forward(Context& context, const Tensor& in) {
  x = in;
  Tensor y = context.empty(Context::wide(x.dtype()), {x.rows(), w.weight->shape[0]});
  context.kernels.matmul(context.stream, {.y = y,
                                          .a = x,
                                          .b = w.weight->value,
                                          .transpose_b = true,
                                          .packed_b = w.weight->packed(context, true),
                                          .epilogue = {.bias = w.bias ? w.bias->value : Tensor()}});
  return y;
}

Tensor WideLinearOp::backward(Context& context, const Tensor& dy) {
  rounded = in_dtype(context, dy, x.dtype());
  Tensor dx = context.empty_like(x);
  context.kernels.matmul(context.stream,
                         {.y = dx, .a = rounded, .b = w.weight->value, .packed_b = w.weight->packed(context, false)});
  return dx;
}

void WideLinearOp::backward_weight(Context& context, const Tensor& dy) {
  if (w.weight->trainable)
    context.kernels.matmul(
        context.stream,
        {.y = w.weight->grad, .a = rounded, .b = x, .transpose_a = true, .accumulate = w.weight->accumulate_next()});
  if (w.bias && w.bias->trainable)
    context.kernels.sum_rows(context.stream, w.bias->grad, dy, w.bias->accumulate_next());
}

}  // namespace weft
