// LoraSet: two narrow products for the rows of each adapter.
#include "weft/nn/lora_set.h"

#include "weft/autograd/ops/narrow_products.h"
#include "weft/kernels/grouped_matmul.h"
#include "weft/nn/lora.h"
#include "weft/parallel/expert/expert_products.h"

namespace weft {

LoraSet::Factors& LoraSet::add(const Param& weight, const std::string& name, int64_t rank, float scale) {
  const LoraPlacements p = lora_placements(rank, weight.placement);
  auto& factors = factors_[&weight];
  factors.reset(new Factors{.a = {name + ".lora_a", p.a, {}}, .b = {name + ".lora_b", p.b, {}}, .scale = scale});
  factors->a.trainable = factors->b.trainable = false;
  return *factors;
}

LoraSet::Factors* LoraSet::find(const Param& weight) const {
  const auto found = factors_.find(&weight);
  return found == factors_.end() ? nullptr : found->second.get();
}

Var add_lora_rows(const RowAdapters& adapters, const Param& weight, Var y, const Var& x) {
  Context& context = *x.context;
  check(!context.tape, "adapters of single rows are for passes without a tape");
  for (const RowAdapters::Run& run : adapters.runs) {
    LoraSet::Factors* const f = adapters.sets[size_t(run.set)]->find(weight);
    if (!f) continue;
    const Tensor h = times_transposed(context, as_matrix(x.value).slice_rows(run.begin, run.count), f->a);
    context.kernels.scale(context.stream, h, h, f->scale);
    context.kernels.matmul(context.stream, {.y = as_matrix(y.value).slice_rows(run.begin, run.count),
                                            .a = h,
                                            .b = f->b.value,
                                            .transpose_b = true,
                                            .accumulate = true,
                                            .packed_b = f->b.packed(context, true)});
  }
  return y;
}

Var add_expert_lora_rows(const RowAdapters& adapters, std::span<const int32_t> set_of_rows, const Route& route,
                         const Param& weight, Var y, const Var& x) {
  Context& context = *x.context;
  check(!context.tape, "adapters of single rows are for passes without a tape");
  each_expert(route, [&](int64_t e, int64_t begin, int64_t n) {
    for (int64_t i = begin, end = begin; i < begin + n; i = end) {
      const int32_t set = set_of_rows[size_t(i)];
      while (end < begin + n && set_of_rows[size_t(end)] == set) ++end;
      LoraSet::Factors* const f = set >= 0 ? adapters.sets[size_t(set)]->find(weight) : nullptr;
      if (!f) continue;
      const Tensor h = context.empty(x.value.dtype(), {end - i, f->a.shape[1]});
      context.kernels.matmul(
          context.stream,
          {.y = h, .a = x.value.slice_rows(i, end - i), .b = matrix_of(f->a.value, e), .transpose_b = true});
      context.kernels.scale(context.stream, h, h, f->scale);
      context.kernels.matmul(context.stream, {.y = y.value.slice_rows(i, end - i),
                                              .a = h,
                                              .b = matrix_of(f->b.value, e),
                                              .transpose_b = true,
                                              .accumulate = true});
    }
  });
  return y;
}

}  // namespace weft
