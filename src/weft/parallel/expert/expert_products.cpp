// Expert products: grouped matrix products, and the gradients of their weights expert by expert.
#include "weft/parallel/expert/expert_products.h"

#include "weft/kernels/grouped_matmul.h"

namespace weft {

GroupedMatmulArgs expert_products(const Route& route, const Param& weight, const Tensor& y, const Tensor& a,
                                  bool is_backward, bool accumulate, Epilogue epilogue) {
  return {.y = y,
          .a = a,
          .b = weight.is_nf4() ? Tensor() : weight.value,
          .transpose_b = !is_backward,
          .accumulate = accumulate,
          .float8 = weight.in_float8,
          .nf4_b = weight.nf4_stack(),
          .blocks_b = weight.blocks(),
          .starts = route.chosen() ? std::span<const int64_t>() : route.starts(),
          .groups = route.chosen() ? route.chosen().reshape({a.dim(0)}) : Tensor(),
          .epilogue = std::move(epilogue)};
}

void multiply_experts(Context& context, const GroupedMatmulArgs& products) {
  context.kernels.grouped_matmuls(context.stream, {&products, 1});
}

void add_expert_gradients(Context& context, const Route& route, Param& weight, const Tensor& dy, const Tensor& x) {
  if (!weight.trainable) return;
  const bool accumulate = weight.accumulate_next();
  const std::span<const int64_t> starts = route.starts();
  for (size_t e = 0; e + 1 < starts.size(); ++e) {
    const int64_t begin = starts[e], n = starts[e + 1] - begin;
    const Tensor grad = matrix_of(weight.grad, int64_t(e));
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
