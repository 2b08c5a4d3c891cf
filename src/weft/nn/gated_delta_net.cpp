// GatedDeltaNet: the forward pass of one layer's recurrence.
#include "weft/nn/gated_delta_net.h"

#include <cmath>

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/reshape.h"

namespace weft {
namespace {

// Of so many outputs to each head.
LinearConfig to_heads(const GatedDeltaConfig& c, const Cut& heads, int64_t per_head) {
  return {.in = c.hidden,
          .out = heads.total * per_head,
          .init_std = c.init_std,
          .out_cut = elements_of(heads, per_head),
          .base = c.base};
}
LinearConfig to_key_heads(const GatedDeltaConfig& c, const HeadCut& cut) {
  LinearConfig config = to_heads(c, cut.kv_heads, c.key_dim);
  config.is_shared = cut.is_kv_shared, config.is_first_holder = cut.is_first_holder;
  return config;
}
LinearConfig from_heads(const GatedDeltaConfig& c, const Cut& heads, const TensorParallel& tensor) {
  return {.in = c.heads * c.value_dim,
          .out = c.hidden,
          .init_std = c.output_init_std,
          .in_cut = elements_of(heads, c.value_dim),
          .is_first = tensor.rank() == 0,
          .base = c.base};
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
      value_(name + ".value", to_heads(c, cut_.heads, c.value_dim)),
      gate_(name + ".gate", to_heads(c, cut_.heads, c.value_dim)),
      decay_(name + ".decay", to_heads(c, cut_.heads, 1)),
      beta_(name + ".beta", to_heads(c, cut_.heads, 1)),
      query_conv_(name + ".query_conv.weight", key_taps(c, cut_), taps_init(c)),
      key_conv_(name + ".key_conv.weight", key_taps(c, cut_), taps_init(c)),
      value_conv_(name + ".value_conv.weight", taps(c, cut_.heads, c.value_dim), taps_init(c)),
      rate_(name + ".rate", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::log_rate()),
      shift_(name + ".shift", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::time_step()),
      norm_(name + ".norm", tensor_.replicated_inside({c.value_dim}), {.kind = NormKind::rms, .eps = c.norm_eps}),
      output_(name + ".output", from_heads(c, cut_.heads, tensor_)) {
  if (partition.context && partition.context->size() > 1)
    throw UsageError(
        "mesh.cp = {}: layers of the gated delta rule hand a state from token to token of a sequence, which must lie "
        "on one rank: write cp = 1",
        partition.context->size());
}

Recurrence GatedDeltaNet::past(Context& context, const Pass& pass, int which, DType dtype, Shape state) {
  if (const PagedPlan* const paged = pass.attention.paged) {
    check(!paged->spread, "layers of the gated delta rule do not serve with their tokens spread over ranks");
    Tensor& states = paged->cache->state(layer_, which);
    state[0] = paged->cache->num_states();
    if (!states) states = context.empty(dtype, state);
    return {pass.runs, states};
  }
  KvCache* const cache = pass.attention.cache;
  if (!cache) return {pass.runs};
  Tensor& states = cache->state(layer_, which);
  if (!states) states = context.empty(dtype, state);
  return {cache->run(pass.num_tokens), states};
}

Var GatedDeltaNet::convolved(const Var& x, Param& weight, const Pass& pass, int which) {
  const Shape state{1, config_.conv - 1, x.value.dim(1)};
  return apply(*x.context, CausalConvOp{weight, past(*x.context, pass, which, x.value.dtype(), state)}, x);
}

Var GatedDeltaNet::operator()(const Var& residual, const Pass& pass, const WantedRows* wanted) {
  Context& context = *residual.context;
  const int64_t tokens = pass.num_tokens, heads = cut_.heads.count, keys = cut_.kv_heads.count;
  const Var x = tensor_.enter(residual);
  const auto [queries, key, value] = linears(x, query_.weights(), key_.weights(), value_.weights());
  const auto [decay, beta] = linears(x, decay_.weights(), beta_.weights());
  const Shape of_keys{tokens, keys, config_.key_dim}, of_values{tokens, heads, config_.value_dim};
  const Shape state{1, heads, config_.key_dim, config_.value_dim};
  const Var y =
      apply(context, GatedDeltaOp{{rate_, shift_}, past(context, pass, 3, Context::wide(x.value.dtype()), state)},
            reshape(convolved(queries, query_conv_, pass, 0), of_keys),
            reshape(convolved(key, key_conv_, pass, 1), of_keys),
            reshape(convolved(value, value_conv_, pass, 2), of_values), decay, beta);
  const auto given = [wanted](const Var& rows) { return wanted ? wanted->of(rows) : rows; };
  const Pass& asked = wanted ? wanted->pass() : pass;
  const Var normed = reshape(norm_(y), {tokens, heads * config_.value_dim});
  const Var gated =
      apply(context, GatedActivationOp{Activation::silu}, linear(given(x), gate_.weights()), given(normed));
  const Var out = tensor_.leave(output_(gated, asked));
  return pass.dropout(out, config_.dropout, output_dropout_site_, tensor_.tokens(tokens).begin);
}

}  // namespace weft
