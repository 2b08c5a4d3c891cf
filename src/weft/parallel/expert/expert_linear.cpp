// Expert linear: a product for each expert that has rows, and two narrow ones.
#include "weft/parallel/expert/expert_linear.h"

#include "weft/autograd/ops/own.h"

namespace weft {
namespace {

// y = or += a times each expert's matrix, transposed or not.
void products(Context& context, const Route& route, const Param& weight, const Tensor& y, const Tensor& a,
              bool is_backward, bool accumulate = false) {
  each_expert(route, [&](int64_t e, int64_t begin, int64_t n) {
    ExpertProduct{weight, e, is_backward, accumulate}(context, y.slice_rows(begin, n), a.slice_rows(begin, n));
  });
}

}  // namespace

Tensor ExpertLinearOp::forward(Context& context, const Tensor& in) {
  x = in;
  Tensor y = context.empty(x.dtype(), {x.dim(0), w.shape[1]});
  products(context, *route, w, y, x, false);
  return y;
}

Tensor ExpertLinearOp::backward(Context& context, const Tensor& dy) {
  Tensor dx = context.empty_like(x);
  products(context, *route, w, dx, dy, true);
  return dx;
}

Tensor ExpertLoraOp::forward(Context& context, const Tensor& y, const Tensor& in) {
  x = in;
  h = context.empty(x.dtype(), {x.dim(0), a.shape[1]});
  products(context, *route, a, h, x, false);
  context.kernels.scale(context.stream, h, h, scale);
  Tensor sum = own(context, y);
  products(context, *route, b, sum, h, false, true);
  return sum;
}

std::array<Tensor, 2> ExpertLoraOp::backward(Context& context, const Tensor& dy) {
  dh = context.empty_like(h);
  products(context, *route, b, dh, dy, true);
  context.kernels.scale(context.stream, dh, dh, scale);
  Tensor dx = context.empty_like(x);
  products(context, *route, a, dx, dh, true);
  return {dy, std::move(dx)};
}

void ExpertLoraOp::backward_weight(Context& context, const Tensor& dy) {
  add_expert_gradients(context, *route, b, dy, h);
  add_expert_gradients(context, *route, a, dh, x);
}

}  // namespace weft
