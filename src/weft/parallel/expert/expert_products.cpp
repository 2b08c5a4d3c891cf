// Expert products: grouped matrix products, as one product for each expert that has rows.
#include "weft/parallel/expert/expert_products.h"

namespace weft {
namespace {

// One expert's rows of blocks, where all are held so.
BlockMatrix blocks_of(const Param& weight, int64_t expert) {
  BlockMatrix m = weight.blocks();
  if (!m) return m;
  m.rows = weight.shape[1];
  m.blocks = m.blocks.slice_rows(expert * m.rows, m.rows);
  return m;
}

}  // namespace

Tensor expert_slice(const Tensor& stack, int64_t expert) {
  const int64_t rows = stack.dim(1), cols = stack.dim(2);
  return stack.slice_flat(expert * rows * cols, {rows, cols});
}

void ExpertProduct::operator()(Context& context, const Tensor& y, const Tensor& a, Epilogue epilogue) const {
  context.kernels.matmul(context.stream,
                         {.y = y,
                          .a = a,
                          .b = weight.value && !weight.is_nf4() ? expert_slice(weight.value, expert) : Tensor{},
                          .transpose_b = !is_backward,
                          .accumulate = accumulate,
                          .float8 = weight.in_float8,
                          .nf4_b = weight.nf4_of_stack(expert),
                          .blocks_b = blocks_of(weight, expert),
                          .epilogue = std::move(epilogue)});
}

void add_expert_gradients(Context& context, const Route& route, Param& weight, const Tensor& dy, const Tensor& x) {
  if (!weight.trainable) return;
  const bool accumulate = weight.accumulate_next();
  const std::span<const int64_t> starts = route.starts();
  for (size_t e = 0; e + 1 < starts.size(); ++e) {
    const int64_t begin = starts[e], n = starts[e + 1] - begin;
    const Tensor grad = expert_slice(weight.grad, int64_t(e));
    if (n > 0)
      context.kernels.matmul(context.stream, {.y = grad,
                                              .a = dy.slice_rows(begin, n),
                                              .b = x.slice_rows(begin, n),
                                              .transpose_a = true,
                                              .accumulate = accumulate,
                                              .float8 = weight.in_float8});
    else if (!accumulate)
      context.kernels.fill(context.stream, grad, 0);
  }
}

}  // namespace weft
