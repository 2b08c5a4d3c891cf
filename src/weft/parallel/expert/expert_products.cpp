// Expert products: grouped matrix products, and the gradients of their weights.
#include "weft/parallel/expert/expert_products.h"

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
          .starts = route.is_on_device() ? std::span<const int64_t>() : route.starts(),
          .runs = route.runs(),
          .groups = route.is_on_device() && !route.runs() ? route.chosen().reshape({a.dim(0)}) : Tensor(),
          .epilogue = std::move(epilogue)};
}

void multiply_experts(Context& context, const GroupedMatmulArgs& products) {
  context.kernels.grouped_matmuls(context.stream, {&products, 1});
}

GroupedMatmulArgs expert_outputs(const Route& route, const LinearWeights& w, const Tensor& y, const Tensor& a,
                                 Epilogue epilogue) {
  if (w.bias) epilogue.bias = w.bias->value;
  return expert_products(route, *w.weight, y, a, false, false, std::move(epilogue));
}

namespace {

void add_bias_gradients(Context& context, const Route& route, Param& bias, const Tensor& dy) {
  if (!bias.accumulate_next()) context.kernels.fill(context.stream, bias.grad, 0);
  each_expert(route, [&](int64_t expert, int64_t begin, int64_t count) {
    context.kernels.sum_rows(context.stream, bias.grad.slice_rows(expert, 1), dy.slice_rows(begin, count), true);
  });
}

}  // namespace

void add_expert_gradients(Context& context, const Route& route, const LinearWeights& w, const Tensor& dy,
                          const Tensor& x) {
  if (w.bias && w.bias->trainable) add_bias_gradients(context, route, *w.bias, dy);
  Param& weight = *w.weight;
  if (!weight.trainable) return;
  context.kernels.grouped_gradients(context.stream, {.y = weight.grad,
                                                     .a = dy,
                                                     .b = x,
                                                     .accumulate = weight.accumulate_next(),
                                                     .float8 = weight.in_float8,
                                                     .starts = route.starts()});
}

}  // namespace weft
