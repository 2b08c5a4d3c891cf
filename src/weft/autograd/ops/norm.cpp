// Norm: calls of the norm kernels.
#include "weft/autograd/ops/norm.h"

namespace weft {

Tensor NormState::forward(Context& context, const Tensor& x, const Tensor& residual, const Tensor& sum) {
  const DType wide = Context::wide(x.dtype());
  x_ = residual ? sum : x;
  rstd_ = context.empty(wide, {x.rows()});
  if (w_.kind == NormKind::layer) mean_ = context.empty(wide, {x.rows()});
  Tensor y = context.empty_like(x);
  context.kernels.norm(context.stream, {.kind = w_.kind,
                                        .y = y,
                                        .sum = sum,
                                        .mean = mean_,
                                        .rstd = rstd_,
                                        .x = x,
                                        .residual = residual,
                                        .weight = w_.weight->value,
                                        .bias = w_.bias ? w_.bias->value : Tensor{},
                                        .eps = w_.eps,
                                        .weight_offset = w_.weight_offset});
  return y;
}

Tensor NormState::backward(Context& context, const Tensor& dy, const Tensor& dsum) {
  if (!dy) return dsum;
  Tensor dx = context.empty_like(x_);
  const bool train_weight = w_.weight->trainable, train_bias = w_.bias && w_.bias->trainable;
  bool accumulate = true;
  if (train_weight) accumulate = w_.weight->accumulate_next();
  if (train_bias) accumulate = w_.bias->accumulate_next();
  context.kernels.norm_backward(context.stream, {.kind = w_.kind,
                                                 .dx = dx,
                                                 .dweight = train_weight ? w_.weight->grad : Tensor{},
                                                 .dbias = train_bias ? w_.bias->grad : Tensor{},
                                                 .accumulate = accumulate,
                                                 .dy = dy,
                                                 .dsum = dsum,
                                                 .x = x_,
                                                 .mean = mean_,
                                                 .rstd = rstd_,
                                                 .weight = w_.weight->value,
                                                 .weight_offset = w_.weight_offset});
  return dx;
}

}  // namespace weft
