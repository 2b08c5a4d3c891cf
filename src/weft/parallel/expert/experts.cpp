// Experts: grouped matrix products, as one product for each expert that has rows.
#include "weft/parallel/expert/experts.h"

namespace weft {
namespace {

// The matrix of one expert.
Tensor slice(const Tensor& all, int64_t expert) {
  const int64_t rows = all.dim(1), cols = all.dim(2);
  return all.slice_flat(expert * rows * cols, {rows, cols});
}

// One expert's rows of blocks, where all are held so.
BlockMatrix blocks_of(const Param& weight, int64_t expert) {
  BlockMatrix m = weight.blocks();
  if (!m) return m;
  m.rows = weight.shape[1];
  m.blocks = m.blocks.slice_rows(expert * m.rows, m.rows);
  return m;
}

}  // namespace

Tensor ExpertsOp::forward(Context& context, const Tensor& in) {
  x = in;
  const int64_t rows = x.dim(0), ffn = w.up->shape[1];
  if (w.gate) g = context.empty(x.dtype(), {rows, ffn});
  u = context.empty(x.dtype(), {rows, ffn}), act = context.empty(x.dtype(), {rows, ffn});
  Tensor y = context.empty_like(x);
  const auto product = [&](const Tensor& out, const Tensor& a, const Param& weight, int64_t e, Epilogue epilogue) {
    context.kernels.matmul(context.stream, {.y = out,
                                            .a = a,
                                            .b = weight.value ? slice(weight.value, e) : Tensor{},
                                            .transpose_b = true,
                                            .float8 = weight.in_float8,
                                            .blocks_b = blocks_of(weight, e),
                                            .epilogue = std::move(epilogue)});
  };
  each([&](int64_t e, int64_t begin, int64_t n) {
    const Tensor xs = x.slice_rows(begin, n), acts = act.slice_rows(begin, n);
    Epilogue epilogue{.kind = Epilogue::Kind::activate, .f = w.f, .act = acts};
    if (w.gate) {
      epilogue.kind = Epilogue::Kind::gated, epilogue.gate = g.slice_rows(begin, n);
      product(epilogue.gate, xs, *w.gate, e, {});
    }
    product(u.slice_rows(begin, n), xs, *w.up, e, std::move(epilogue));
    product(y.slice_rows(begin, n), acts, *w.down, e, {});
  });
  return y;
}

void ExpertsOp::expert_backward(Context& context, const Tensor& dx, const Tensor& dy, int64_t e, int64_t begin,
                                int64_t n) {
  const auto product = [&](const Tensor& out, const Tensor& a, const Param& weight, bool accumulate,
                           Epilogue epilogue) {
    context.kernels.matmul(context.stream, {.y = out,
                                            .a = a,
                                            .b = slice(weight.value, e),
                                            .accumulate = accumulate,
                                            .float8 = weight.in_float8,
                                            .epilogue = std::move(epilogue)});
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
  each([&](int64_t e, int64_t begin, int64_t n) { expert_backward(context, dx, dy, e, begin, n); });
  g = {}, u = {};
  return dx;
}

void ExpertsOp::backward_weight(Context& context, const Tensor& dy, int part) {
  Param* const weight = part == 0 ? w.down : part == 1 ? w.gate : w.up;
  if (!weight || !weight->trainable) return;
  const Tensor &d = part == 0 ? dy : part == 1 ? dg : du, &in = part == 0 ? act : x;
  const bool accumulate = weight->accumulate_next();
  const std::span<const int64_t> starts = route->starts();
  for (size_t e = 0; e + 1 < starts.size(); ++e) {
    const int64_t begin = starts[e], n = starts[e + 1] - begin;
    const Tensor grad = slice(weight->grad, int64_t(e));
    if (n > 0)
      context.kernels.matmul(context.stream, {.y = grad,
                                              .a = d.slice_rows(begin, n),
                                              .b = in.slice_rows(begin, n),
                                              .transpose_a = true,
                                              .accumulate = accumulate,
                                              .float8 = weight->in_float8});
    else if (!accumulate)
      context.kernels.fill(context.stream, grad, 0);
  }
}

}  // namespace weft
