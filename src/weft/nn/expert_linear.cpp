// ExpertLinear: the forward pass.
#include "weft/nn/expert_linear.h"

#include "weft/parallel/expert/expert_linear.h"

namespace weft {

namespace {

// Of a sum the bias is held by all of its ranks.
Placement bias_placement(const Placement& weight, bool is_sum, bool is_first) {
  Placement p(Shape{weight.whole[0], weight.whole[1]});
  for (int dim = 0; dim < 2; ++dim)
    p.cut(dim, {.begin = weight.begin[size_t(dim)], .count = weight.shape[dim], .total = weight.whole[dim]});
  p.is_expert = weight.is_expert, p.is_partial = is_sum, p.is_first_copy = !is_sum || is_first;
  return p;
}

}  // namespace

ExpertLinear::ExpertLinear(const std::string& name, const Placement& placement, bool has_bias, float init_std,
                           BaseFormat base, const AdapterConfig& adapter, bool is_sum, bool is_first)
    : scale_(adapter.scale),
      adds_bias_(!is_sum || is_first),
      weight_(name + ".weight", placement, Init::normal(init_std)) {
  if (has_bias) bias_.emplace(name + ".bias", bias_placement(placement, is_sum, is_first), Init::zeros());
  if (base == BaseFormat::nf4) weight_.hold_as_nf4();
  weight_.readers = Param::Readers::products, weight_.is_bulk = true;
  if (adapter.rank == 0) return;
  const LoraPlacements p = trained_lora_placements(adapter.rank, placement, is_sum, is_first);
  a_.emplace(name + ".lora_a", p.a, lora_a_init(placement));
  b_.emplace(name + ".lora_b", p.b, Init::zeros());
}

Var ExpertLinear::operator()(const Var& x, const ExpertRows& rows, const Pass& pass) {
  Context& context = *x.context;
  Var y = apply(context, ExpertLinearOp{weights(), rows.route}, x);
  if (a_ && pass.uses_adapters) y = apply(context, ExpertLoraOp{*a_, *b_, scale_, rows.route}, y, x);
  if (!rows.sets.empty()) y = add_expert_lora_rows(*pass.lora, rows.sets, *rows.route, weight_, std::move(y), x);
  return y;
}

}  // namespace weft
