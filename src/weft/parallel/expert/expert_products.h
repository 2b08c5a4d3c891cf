// Products of rows that are ordered by expert, each expert's with its own matrix of a stack.
#pragma once
#include "weft/autograd/ops/linear.h"
#include "weft/parallel/expert/route.h"

namespace weft {

// Calls body(expert, first row, rows) for this rank's experts that have any rows.
void each_expert(const Route& route, auto&& body) {
  const std::span<const int64_t> starts = route.starts();
  for (size_t e = 0; e + 1 < starts.size(); ++e)
    if (starts[e + 1] > starts[e]) body(int64_t(e), starts[e], starts[e + 1] - starts[e]);
}

// y = a wᵀ of each expert's rows, or a w in a backward pass; added to y, and with an epilogue. For
// Kernels::grouped_matmuls.
GroupedMatmulArgs expert_products(const Route& route, const Param& weight, const Tensor& y, const Tensor& a,
                                  bool is_backward = false, bool accumulate = false, Epilogue epilogue = {});
void multiply_experts(Context& context, const GroupedMatmulArgs& products);
// y = a wᵀ + bias.
GroupedMatmulArgs expert_outputs(const Route& route, const LinearWeights& w, const Tensor& y, const Tensor& a,
                                 Epilogue epilogue = {});

// w.grad += dyᵀ x of each expert's rows, and the bias's += the sums of dy, unless these are frozen. Experts without
// rows get zeros where nothing was yet.
void add_expert_gradients(Context& context, const Route& route, const LinearWeights& w, const Tensor& dy,
                          const Tensor& x);

}  // namespace weft
