// Experts: the forward and backward pass of each expert that has rows.
#include "weft/parallel/expert/experts.h"

#include "weft/parallel/expert/expert_products.h"

namespace weft {

Tensor ExpertsOp::forward(Context& context, const Tensor& in) {
  x = in;
  const int64_t rows = x.dim(0), ffn = w.up->shape[1];
  if (w.gate) g = context.empty(x.dtype(), {rows, ffn});
  u = context.empty(x.dtype(), {rows, ffn}), act = context.empty(x.dtype(), {rows, ffn});
  Tensor y = context.empty_like(x);
  each_expert(*route, [&](int64_t e, int64_t begin, int64_t n) {
    const Tensor xs = x.slice_rows(begin, n), acts = act.slice_rows(begin, n);
    Epilogue epilogue{.kind = Epilogue::Kind::activate, .f = w.f, .act = acts};
    if (w.gate) {
      epilogue.kind = Epilogue::Kind::gated, epilogue.gate = g.slice_rows(begin, n);
      ExpertProduct{*w.gate, e}(context, epilogue.gate, xs);
    }
    ExpertProduct{*w.up, e}(context, u.slice_rows(begin, n), xs, std::move(epilogue));
    ExpertProduct{*w.down, e}(context, y.slice_rows(begin, n), acts);
  });
  return y;
}

void ExpertsOp::expert_backward(Context& context, const Tensor& dx, const Tensor& dy, int64_t e, int64_t begin,
                                int64_t n) {
  const auto product = [&](const Tensor& out, const Tensor& a, const Param& weight, bool accumulate,
                           Epilogue epilogue) {
    ExpertProduct{weight, e, true, accumulate}(context, out, a, std::move(epilogue));
  };
  const auto rows = [&](const Tensor& t) { return t.slice_rows(begin, n); };
  if (!w.gate) {
    product(rows(du), rows(dy), *w.down, false,
            {.kind = Epilogue::Kind::activate_backward, .f = w.f, .pre = rows(u)});
    return product(rows(dx), rows(du), *w.up, false, {});
  }
  product(rows(du), rows(dy), *w.down, false,
          {.kind = Epilogue::Kind::gated_backward, .f = w.f, .gate = rows(g), .up = rows(u), .dgate = rows(dg)});
  product(rows(dx), rows(dg), *w.gate, false, {});
  product(rows(dx), rows(du), *w.up, true, {});
}

Tensor ExpertsOp::backward(Context& context, const Tensor& dy) {
  if (w.gate) dg = context.empty_like(g);
  du = context.empty_like(u);
  Tensor dx = context.empty_like(x);
  each_expert(*route, [&](int64_t e, int64_t begin, int64_t n) { expert_backward(context, dx, dy, e, begin, n); });
  g = {}, u = {};
  return dx;
}

void ExpertsOp::backward_weight(Context& context, const Tensor& dy, int part) {
  if (part == 0) return add_expert_gradients(context, *route, *w.down, dy, act);
  if (part == 2) return add_expert_gradients(context, *route, *w.up, du, x);
  if (w.gate) add_expert_gradients(context, *route, *w.gate, dg, x);
}

}  // namespace weft
