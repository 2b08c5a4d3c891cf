// RecurrentMixer: the forward pass of one layer's recurrence.
#include "weft/nn/recurrent_mixer.h"

#include <algorithm>

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/reshape.h"
#include "weft/autograd/ops/scale.h"
#include "weft/nn/ordered_tokens.h"
#include "weft/parallel/norm_across.h"

namespace weft {
namespace {

// Of so many outputs to each head.
LinearConfig to_heads(const RecurrentConfig& c, const Cut& heads, int64_t per_head, LoraTarget target) {
  const bool is_factored = target == LoraTarget::state_gate || target == LoraTarget::state_decay;
  return {.in = is_factored && c.gate_rank > 0 ? c.gate_rank : c.hidden,
          .out = heads.total * per_head,
          .init_std = c.init_std,
          .out_cut = elements_of(heads, per_head),
          .adapter = adapter_of(c.lora, target),
          .base = c.lora.base};
}
LinearConfig to_key_heads(const RecurrentConfig& c, const HeadCut& cut) {
  LinearConfig config = to_heads(c, cut.kv_heads, c.key_dim, LoraTarget::state_inputs);
  config.is_shared = cut.is_kv_shared, config.is_first_holder = cut.is_first_holder;
  return config;
}
// Numbers of each, which say how a state changes.
LinearConfig to_rates(const RecurrentConfig& c, const HeadCut& cut, int64_t per_head, LoraTarget target) {
  LinearConfig config = to_heads(c, cut.heads, per_head, target);
  config.is_wide = true, config.base = BaseFormat::plain;
  return config;
}
// What every rank of the tensor group computes whole.
LinearConfig to_gate_rank(const RecurrentConfig& c, const TensorParallel& tensor, LoraTarget target) {
  return {.in = c.hidden,
          .out = c.gate_rank,
          .init_std = c.init_std,
          .is_shared = tensor.size() > 1,
          .is_first_holder = tensor.rank() == 0,
          .adapter = adapter_of(c.lora, target),
          .base = c.lora.base};
}
LinearConfig from_heads(const RecurrentConfig& c, const Cut& heads, const TensorParallel& tensor) {
  return {.in = c.heads * c.value_dim,
          .out = c.hidden,
          .init_std = c.output_init_std,
          .in_cut = elements_of(heads, c.value_dim),
          .is_first = tensor.rank() == 0,
          .adapter = adapter_of(c.lora, LoraTarget::state_output, tensor.size() > 1 ? &tensor.group() : nullptr),
          .base = c.lora.base};
}

// Of a number to each channel, or of rows of so many.
Placement channels(const Cut& heads, int64_t per_head, int64_t row = 0) {
  const int64_t all = heads.total * per_head;
  return Placement(row > 0 ? Shape{all, row} : Shape{all}).cut(0, elements_of(heads, per_head));
}
// Of those that keys have, perhaps on several ranks.
Placement of_keys(Placement p, const HeadCut& cut) {
  p.is_partial = cut.is_kv_shared, p.is_first_copy = cut.is_first_holder;
  return p;
}
// Of what the channels of keys or values have: rows of so many, or a number each.
Placement placed(const RecurrentConfig& c, const HeadCut& cut, bool is_of_keys, int64_t row) {
  return is_of_keys ? of_keys(channels(cut.kv_heads, c.key_dim, row), cut) : channels(cut.heads, c.value_dim, row);
}
Convolution convolution(const std::string& name, const RecurrentConfig& c, const HeadCut& cut, bool is_of_keys) {
  std::optional<Placement> bias;
  if (c.has_conv_bias) bias = placed(c, cut, is_of_keys, 0);
  return {name, placed(c, cut, is_of_keys, c.conv), bias};
}

}  // namespace

RecurrentMixer::RecurrentMixer(const std::string& name, int layer, const RecurrentConfig& c,
                               const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      cut_(cut_heads(c.heads, c.key_heads, tensor_.rank(), tensor_.size())),
      layer_(layer),
      output_dropout_site_(name_hash(name + ".output")),
      query_(name + ".query", to_key_heads(c, cut_)),
      key_(name + ".key", to_key_heads(c, cut_)),
      value_(name + ".value", to_heads(c, cut_.heads, c.value_dim, LoraTarget::state_inputs)),
      gate_(name + ".gate", to_heads(c, cut_.heads, c.value_dim, LoraTarget::state_gate)),
      decay_(name + ".decay", to_rates(c, cut_, rates_of_head(), LoraTarget::state_decay)),
      query_conv_(convolution(name + ".query_conv", c, cut_, true)),
      key_conv_(convolution(name + ".key_conv", c, cut_, true)),
      value_conv_(convolution(name + ".value_conv", c, cut_, false)),
      rate_(name + ".rate", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::log_rate()),
      shift_(name + ".shift", channels(cut_.heads, rates_of_head()), Init::time_step()),
      output_(name + ".output", from_heads(c, cut_.heads, tensor_)) {
  if (c.has_norm)
    norm_.emplace(name + ".norm",
                  tensor_.replicated_inside({is_delta() ? c.value_dim : c.heads / c.key_heads * c.value_dim}),
                  NormConfig{.kind = NormKind::rms, .eps = c.norm_eps, .has_weight = is_delta()});
  if (c.gate_rank > 0) {
    gate_down_.emplace(name + ".gate_down", to_gate_rank(c, tensor_, LoraTarget::state_gate));
    decay_down_.emplace(name + ".decay_down", to_gate_rank(c, tensor_, LoraTarget::state_decay));
  }
  if (is_delta()) {
    beta_.emplace(name + ".beta", to_rates(c, cut_, 1, LoraTarget::state_beta));
    return;
  }
  skip_.emplace(name + ".skip", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::ones());
  if (c.has_norm) norm_weight_.emplace(name + ".norm.weight", channels(cut_.heads, c.value_dim), Init::ones());
}

Var RecurrentMixer::normed_by_key(const Var& y) {
  const auto normalise = [&](const Var& all) {
    const int64_t rows = all.value.dim(0), columns = all.value.dim(1);
    const int64_t of_key = config_.heads / config_.key_heads * config_.value_dim;
    return reshape((*norm_)(reshape(all, {rows * (columns / of_key), of_key})), {rows, columns});
  };
  // A key whose heads lie on several ranks needs them all.
  const Var normed = cut_.is_kv_shared
                         ? norm_across(tensor_, elements_of(cut_.heads, config_.value_dim), true, y, normalise)
                         : normalise(y);
  return apply(*y.context, ScaleColumnsOp{*norm_weight_}, normed);
}

Var RecurrentMixer::gated(const Var& y, const Var& x, const Pass& pass, const WantedRows* wanted) {
  const auto given = [wanted](const Var& rows) { return wanted ? wanted->of(rows) : rows; };
  const Pass& asked = wanted ? wanted->pass() : pass;
  const int64_t heads = cut_.heads.count, width = heads * config_.value_dim;
  const auto open = [&](const Var& values) {
    const Var gate = through(gate_down_, gate_, given(x), asked);
    return apply(*y.context, GatedActivationOp{config_.gate}, scaled(gate, config_.scales.gate), values);
  };
  if (is_delta()) {
    const Var normed = (*norm_)(reshape(y, {pass.num_tokens, heads, config_.value_dim}));
    return open(given(reshape(normed, {pass.num_tokens, width})));
  }
  const Var rows = given(reshape(y, {pass.num_tokens, width}));
  if (!norm_) return open(rows);
  return config_.norms_before_gate ? open(normed_by_key(rows)) : normed_by_key(open(rows));
}

Var RecurrentMixer::operator()(const Var& residual, const Pass& pass, const WantedRows* wanted) {
  Context& context = *residual.context;
  const int64_t dk = config_.key_dim, dv = config_.value_dim;
  const Pass& asked = wanted ? wanted->pass() : pass;
  const Var x = tensor_.enter(residual);
  const auto [queries, keys, values] = adapted_linears(x, pass, query_, key_, value_);
  const RecurrentScales& scales = config_.scales;
  const Var decay = scaled(through(decay_down_, decay_, x, pass), scales.decay);
  const int64_t all_keys = cut_.kv_heads.count, per_key = cut_.heads.count / std::max<int64_t>(all_keys, 1);
  const OrderedTokens sequence(pass, all_keys);
  const int64_t first_key = sequence.first(), num_keys = sequence.count(), tokens = sequence.tokens();
  const int64_t first = first_key * per_key, heads = num_keys * per_key;  // of values
  const auto convolved = [&](Convolution& taps, const Var& rows, int64_t first_channel, int which) {
    const Var here = sequence.gathered(rows);
    const Shape kept{1, config_.conv - 1, here.value.dim(1)};
    return taps(here, first_channel, sequence.past(context, layer_, which, here.value.dtype(), kept),
                Activation::silu);
  };
  const Var q =
      reshape(convolved(query_conv_, scaled(queries, scales.query), first_key * dk, 0), {tokens, num_keys, dk});
  const Var k = reshape(convolved(key_conv_, scaled(keys, scales.key), first_key * dk, 1), {tokens, num_keys, dk});
  const Var v = reshape(convolved(value_conv_, scaled(values, scales.value), first * dv, 2), {tokens, heads, dv});
  const Var steps = sequence.gathered(decay);
  const int64_t rates = rates_of_head();
  RecurrenceCall call{.rates = {{rate_, first, heads}, {shift_, first * rates, heads * rates}},
                      .skip = {},
                      .beta_scale = config_.beta_scale,
                      .past = sequence.past(context, layer_, 3, Context::wide(x.value.dtype()), {1, heads, dk, dv})};
  if (skip_) call.skip.emplace(ParamRows{*skip_, first, heads});
  const Var y = is_delta() ? apply(context, GatedDeltaOp{call}, q, k, v, steps, sequence.gathered((*beta_)(x, pass)))
                           : apply(context, SelectiveStateOp{call}, q, k, v, steps);
  const Var made = sequence.scattered(y, per_key * dv);
  const Var out = tensor_.leave(output_(gated(made, x, pass, wanted), asked));
  return pass.dropout(out, config_.dropout, output_dropout_site_, tensor_.tokens(pass.num_tokens).begin);
}

}  // namespace weft
