// Experts: the forward and backward pass, of all experts that have rows together.
#include "weft/parallel/expert/experts.h"

#include "weft/parallel/expert/expert_products.h"

namespace weft {

Tensor ExpertsOp::forward(Context& context, const Tensor& in) {
  x = in;
  const int64_t rows = x.dim(0), ffn = w.up.weight->shape[1];
  if (w.gate.weight) g = context.empty(x.dtype(), {rows, ffn});
  u = context.empty(x.dtype(), {rows, ffn}), act = context.empty(x.dtype(), {rows, ffn});
  Tensor y = context.empty_like(x);
  if (w.gate.weight)
    context.kernels.grouped_matmuls(
        context.stream, std::array{expert_outputs(*route, w.gate, g, x),
                                   expert_outputs(*route, w.up, u, x,
                                                  {.kind = Epilogue::Kind::gated, .f = w.f, .act = act, .gate = g})});
  else
    multiply_experts(context,
                     expert_outputs(*route, w.up, u, x, {.kind = Epilogue::Kind::activate, .f = w.f, .act = act}));
  multiply_experts(context, expert_outputs(*route, w.down, y, act));
  return y;
}

Tensor ExpertsOp::backward(Context& context, const Tensor& dy) {
  if (w.gate.weight) dg = context.empty_like(g);
  du = context.empty_like(u);
  Tensor dx = context.empty_like(x);
  const auto multiply = [&](const Tensor& out, const Tensor& a, const Param& weight, bool accumulate,
                            Epilogue epilogue) {
    multiply_experts(context, expert_products(*route, weight, out, a, true, accumulate, std::move(epilogue)));
  };
  if (w.gate.weight) {
    multiply(du, dy, *w.down.weight, false,
             {.kind = Epilogue::Kind::gated_backward, .f = w.f, .gate = g, .up = u, .dgate = dg});
    multiply(dx, dg, *w.gate.weight, false, {});
    multiply(dx, du, *w.up.weight, true, {});
  } else {
    multiply(du, dy, *w.down.weight, false, {.kind = Epilogue::Kind::activate_backward, .f = w.f, .pre = u});
    multiply(dx, du, *w.up.weight, false, {});
  }
  g = {}, u = {};
  return dx;
}

void ExpertsOp::backward_weight(Context& context, const Tensor& dy, int part) {
  if (part == 0) return add_expert_gradients(context, *route, w.down, dy, act);
  if (part == 2) return add_expert_gradients(context, *route, w.up, du, x);
  if (w.gate.weight) add_expert_gradients(context, *route, w.gate, dg, x);
}

}  // namespace weft
