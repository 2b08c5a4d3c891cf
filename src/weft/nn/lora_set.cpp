// LoraSet: two narrow products for the rows of each adapter.
#include "weft/nn/lora_set.h"

#include "weft/autograd/ops/narrow_products.h"
#include "weft/nn/lora.h"

namespace weft {

LoraSet::Factors& LoraSet::add(const Param& weight, const std::string& name, int64_t rank, float scale) {
  const Placement& p = weight.placement;
  auto& factors = factors_[&weight];
  factors.reset(new Factors{.a = {name + ".lora_a", lora_factor({rank, p.whole[1]}, p, 1), {}},
                            .b = {name + ".lora_b", lora_factor({p.whole[0], rank}, p, 0), {}},
                            .scale = scale});
  factors->a.trainable = factors->b.trainable = false;
  return *factors;
}

LoraSet::Factors* LoraSet::find(const Param& weight) const {
  const auto found = factors_.find(&weight);
  return found == factors_.end() ? nullptr : found->second.get();
}

Var add_lora_rows(std::span<const LoraRows> rows, const Param& weight, Var y, const Var& x) {
  Context& context = *x.context;
  check(!context.tape, "adapters of single rows are for passes without a tape");
  for (const LoraRows& r : rows) {
    LoraSet::Factors* const f = r.set->find(weight);
    if (!f) continue;
    const Tensor h = times_transposed(context, as_matrix(x.value).slice_rows(r.begin, r.count), f->a);
    context.kernels.scale(context.stream, h, h, f->scale);
    context.kernels.matmul(context.stream, {.y = as_matrix(y.value).slice_rows(r.begin, r.count),
                                            .a = h,
                                            .b = f->b.value,
                                            .transpose_b = true,
                                            .accumulate = true,
                                            .packed_b = f->b.packed(context, true)});
  }
  return y;
}

}  // namespace weft
