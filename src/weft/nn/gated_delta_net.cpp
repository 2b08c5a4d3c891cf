// GatedDeltaNet: the forward pass of one layer's recurrence.
#include "weft/nn/gated_delta_net.h"

#include <algorithm>
#include <cmath>

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/reshape.h"
#include "weft/parallel/context/head_exchange.h"

namespace weft {
namespace {

// Of so many outputs to each head.
LinearConfig to_heads(const GatedDeltaConfig& c, const Cut& heads, int64_t per_head, LoraTarget target) {
  return {.in = c.hidden,
          .out = heads.total * per_head,
          .init_std = c.init_std,
          .out_cut = elements_of(heads, per_head),
          .adapter = adapter_of(c.lora, target),
          .base = c.lora.base};
}
LinearConfig to_key_heads(const GatedDeltaConfig& c, const HeadCut& cut) {
  LinearConfig config = to_heads(c, cut.kv_heads, c.key_dim, LoraTarget::delta_inputs);
  config.is_shared = cut.is_kv_shared, config.is_first_holder = cut.is_first_holder;
  return config;
}
// A number to each, which says how a state changes.
LinearConfig to_rates(const GatedDeltaConfig& c, const HeadCut& cut, LoraTarget target) {
  LinearConfig config = to_heads(c, cut.heads, 1, target);
  config.is_wide = true, config.base = BaseFormat::plain;
  return config;
}
LinearConfig from_heads(const GatedDeltaConfig& c, const Cut& heads, const TensorParallel& tensor) {
  return {.in = c.heads * c.value_dim,
          .out = c.hidden,
          .init_std = c.output_init_std,
          .in_cut = elements_of(heads, c.value_dim),
          .is_first = tensor.rank() == 0,
          .adapter = adapter_of(c.lora, LoraTarget::delta_output, tensor.size() > 1 ? &tensor.group() : nullptr),
          .base = c.lora.base};
}

Placement taps(const GatedDeltaConfig& c, const Cut& heads, int64_t per_head) {
  return Placement(Shape{heads.total * per_head, c.conv}).cut(0, elements_of(heads, per_head));
}
Placement key_taps(const GatedDeltaConfig& c, const HeadCut& cut) {
  Placement p = taps(c, cut.kv_heads, c.key_dim);
  p.is_partial = cut.is_kv_shared, p.is_first_copy = cut.is_first_holder;
  return p;
}
// As wide as the uniform values that PyTorch starts a convolution with.
Init taps_init(const GatedDeltaConfig& c) { return Init::normal(1 / std::sqrt(3.0f * float(c.conv))); }

}  // namespace

GatedDeltaNet::GatedDeltaNet(const std::string& name, int layer, const GatedDeltaConfig& c,
                             const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      cut_(cut_heads(c.heads, c.key_heads, tensor_.rank(), tensor_.size())),
      layer_(layer),
      output_dropout_site_(name_hash(name + ".output")),
      query_(name + ".query", to_key_heads(c, cut_)),
      key_(name + ".key", to_key_heads(c, cut_)),
      value_(name + ".value", to_heads(c, cut_.heads, c.value_dim, LoraTarget::delta_inputs)),
      gate_(name + ".gate", to_heads(c, cut_.heads, c.value_dim, LoraTarget::delta_gate)),
      decay_(name + ".decay", to_rates(c, cut_, LoraTarget::delta_decay)),
      beta_(name + ".beta", to_rates(c, cut_, LoraTarget::delta_beta)),
      query_conv_(name + ".query_conv.weight", key_taps(c, cut_), taps_init(c)),
      key_conv_(name + ".key_conv.weight", key_taps(c, cut_), taps_init(c)),
      value_conv_(name + ".value_conv.weight", taps(c, cut_.heads, c.value_dim), taps_init(c)),
      rate_(name + ".rate", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::log_rate()),
      shift_(name + ".shift", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::time_step()),
      norm_(name + ".norm", tensor_.replicated_inside({c.value_dim}), {.kind = NormKind::rms, .eps = c.norm_eps}),
      output_(name + ".output", from_heads(c, cut_.heads, tensor_)) {}

Recurrence GatedDeltaNet::past(Context& context, const Pass& pass, int which, DType dtype, Shape state) {
  if (pass.context_plan) return {pass.context_plan->runs()};
  const PagedPlan* const paged = pass.attention.paged;
  KvCache* const own = pass.attention.cache;
  if (!paged && !own) return {pass.runs};
  check(!paged || !paged->spread, "layers of the gated delta rule do not serve with their tokens spread over ranks");
  Tensor& states = paged ? paged->cache->state(layer_, which) : own->state(layer_, which);
  if (paged) state[0] = paged->cache->num_states();
  if (!states) states = context.empty(dtype, state);
  return {paged ? pass.runs : own->run(pass.num_tokens), states};
}

GatedDeltaNet::KeyShare GatedDeltaNet::share(const Pass& pass) const {
  const int64_t keys = cut_.kv_heads.count, per_key = cut_.heads.count / std::max<int64_t>(keys, 1);
  if (!pass.context_plan) return {0, keys, per_key, pass.num_tokens};
  const ContextLayout& layout = pass.context_plan->layout();
  const HeadShare mine = HeadShare::of(keys, keys, layout.rank(), layout.size());
  return {mine.first_head, mine.num_heads, per_key, layout.num_all_tokens()};
}

Var GatedDeltaNet::gathered(const Var& x, const Pass& pass, const KeyShare& here) {
  const int64_t keys = cut_.kv_heads.count, width = x.value.dim(1) / std::max<int64_t>(keys, 1);
  if (!pass.context_plan) return x;
  const ContextCall call{.parallel = *pass.context_parallel, .plan = *pass.context_plan, .rule = {}};
  const Var heads = apply(*x.context, TokensToHeadsOp{call}, reshape(x, {pass.num_tokens, keys, width}));
  return reshape(heads, {here.tokens, here.count * width});
}

Var GatedDeltaNet::scattered(const Var& x, const Pass& pass, const KeyShare& here) {
  const int64_t keys = cut_.kv_heads.count, width = here.per_key * config_.value_dim;
  if (!pass.context_plan) return x;
  const ContextCall call{.parallel = *pass.context_parallel, .plan = *pass.context_plan, .rule = {}};
  return apply(*x.context, HeadsToTokensOp{.call = call, .heads = keys},
               reshape(x, {here.tokens, here.count, width}));
}

Var GatedDeltaNet::convolved(const Var& x, const ParamRows& taps, const Pass& pass, int which) {
  const Shape state{1, config_.conv - 1, x.value.dim(1)};
  return apply(*x.context, CausalConvOp{taps, past(*x.context, pass, which, x.value.dtype(), state)}, x);
}

Var GatedDeltaNet::operator()(const Var& residual, const Pass& pass, const WantedRows* wanted) {
  Context& context = *residual.context;
  const int64_t dk = config_.key_dim, dv = config_.value_dim;
  const Pass& asked = wanted ? wanted->pass() : pass;
  const Var x = tensor_.enter(residual);
  const auto [queries, keys, values] = adapted_linears(x, pass, query_, key_, value_);
  const Var decay = decay_(x, pass), beta = beta_(x, pass);
  const KeyShare here = share(pass);
  const int64_t first = here.first * here.per_key, heads = here.count * here.per_key;  // of values
  const ParamRows query_taps{query_conv_, here.first * dk, here.count * dk};
  const ParamRows key_taps{key_conv_, here.first * dk, here.count * dk};
  const ParamRows value_taps{value_conv_, first * dv, heads * dv};
  const Var q = convolved(gathered(queries, pass, here), query_taps, pass, 0);
  const Var k = convolved(gathered(keys, pass, here), key_taps, pass, 1);
  const Var v = convolved(gathered(values, pass, here), value_taps, pass, 2);
  const DeltaRates rates{{rate_, first, heads}, {shift_, first, heads}};
  const Recurrence states = past(context, pass, 3, Context::wide(x.value.dtype()), {1, heads, dk, dv});
  const Shape of_keys{here.tokens, here.count, dk};
  const Var y = apply(context, GatedDeltaOp{rates, states}, reshape(q, of_keys), reshape(k, of_keys),
                      reshape(v, {here.tokens, heads, dv}), gathered(decay, pass, here), gathered(beta, pass, here));
  const Shape of_values{pass.num_tokens, cut_.heads.count, dv};
  const Var normed = norm_(reshape(scattered(y, pass, here), of_values));
  const auto given = [wanted](const Var& rows) { return wanted ? wanted->of(rows) : rows; };
  const Var flat = reshape(normed, {pass.num_tokens, cut_.heads.count * dv});
  const Var gated = apply(context, GatedActivationOp{Activation::silu}, gate_(given(x), asked), given(flat));
  const Var out = tensor_.leave(output_(gated, asked));
  return pass.dropout(out, config_.dropout, output_dropout_site_, tensor_.tokens(pass.num_tokens).begin);
}

}  // namespace weft
