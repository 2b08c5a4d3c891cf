// Expert linear: grouped products, and two narrow ones.
#include "weft/parallel/expert/expert_linear.h"

#include "weft/autograd/ops/own.h"

namespace weft {

Tensor ExpertLinearOp::forward(Context& context, const Tensor& in) {
  x = in;
  Tensor y = context.empty(x.dtype(), {x.dim(0), w.weight->shape[1]});
  multiply_experts(context, expert_outputs(*route, w, y, x));
  return y;
}

Tensor ExpertLinearOp::backward(Context& context, const Tensor& dy) {
  Tensor dx = context.empty_like(x);
  multiply_experts(context, expert_products(*route, *w.weight, dx, dy, true));
  return dx;
}

Tensor ExpertLoraOp::forward(Context& context, const Tensor& y, const Tensor& in) {
  x = in;
  h = context.empty(x.dtype(), {x.dim(0), a.shape[1]});
  multiply_experts(context, expert_products(*route, a, h, x));
  context.kernels.scale(context.stream, h, h, scale);
  Tensor sum = own(context, y);
  multiply_experts(context, expert_products(*route, b, sum, h, false, true));
  return sum;
}

std::array<Tensor, 2> ExpertLoraOp::backward(Context& context, const Tensor& dy) {
  dh = context.empty_like(h);
  multiply_experts(context, expert_products(*route, b, dh, dy, true));
  context.kernels.scale(context.stream, dh, dh, scale);
  Tensor dx = context.empty_like(x);
  multiply_experts(context, expert_products(*route, a, dx, dh, true));
  return {dy, std::move(dx)};
}

void ExpertLoraOp::backward_weight(Context& context, const Tensor& dy) {
  add_expert_gradients(context, *route, {&b}, dy, h);
  add_expert_gradients(context, *route, {&a}, dh, x);
}

}  // namespace weft
