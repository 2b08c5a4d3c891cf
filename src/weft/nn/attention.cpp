// Attention: the forward pass of one layer's attention.
#include "weft/nn/attention.h"

#include <cmath>

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/reshape.h"
#include "weft/autograd/ops/scale.h"
#include "weft/parallel/norm_across.h"

namespace weft {
namespace {

// To so many elements of each head, of queries or of gates.
LinearConfig query_config(const AttentionConfig& c, const HeadCut& cut, int64_t dim) {
  return {.in = c.hidden,
          .out = c.heads * dim,
          .has_bias = c.has_qkv_bias,
          .init_std = c.init_std,
          .out_cut = elements_of(cut.heads, dim),
          .adapter = adapter_of(c.lora, LoraTarget::query),
          .base = c.lora.base};
}
// Of keys, or of values.
LinearConfig key_config(const AttentionConfig& c, const HeadCut& cut, int64_t dim, LoraTarget target) {
  return {.in = c.hidden,
          .out = c.kv_heads * dim,
          .has_bias = c.has_qkv_bias,
          .init_std = c.init_std,
          .out_cut = elements_of(cut.kv_heads, dim),
          .is_shared = cut.is_kv_shared,
          .is_first_holder = cut.is_first_holder,
          .adapter = adapter_of(c.lora, target),
          .base = c.lora.base};
}
// One number to each head.
LinearConfig head_gate_config(const AttentionConfig& c, const HeadCut& cut) {
  return {.in = c.hidden,
          .out = c.heads,
          .init_std = c.init_std,
          .out_cut = cut.heads,
          .is_wide = true,
          .adapter = adapter_of(c.lora, LoraTarget::query)};
}
LinearConfig output_config(const AttentionConfig& c, const HeadCut& cut, const TensorParallel& tensor) {
  return {.in = c.heads * c.value_dim,
          .out = c.hidden,
          .has_bias = c.has_output_bias,
          .init_std = c.output_init_std,
          .in_cut = elements_of(cut.heads, c.value_dim),
          .is_first = tensor.rank() == 0,
          .adapter = adapter_of(c.lora, LoraTarget::output, tensor.size() > 1 ? &tensor.group() : nullptr),
          .base = c.lora.base};
}

// What the norm of queries begins with: where scores are not divided by the root of a head's width, queries are, so
// that a model that learns from the beginning does not see one key alone.
float first_query_length(const AttentionConfig& c) {
  const float length = 1 / (c.rule.scale * std::sqrt(float(c.head_dim)));
  return !c.has_head_norm || std::abs(length - 1) < 1e-3f ? 1 : length;
}

}  // namespace

Attention::Attention(const std::string& name, int layer, const AttentionConfig& c, const RopeTable* rope,
                     const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      cut_(cut_heads(c.heads, c.kv_heads, tensor_.rank(), tensor_.size())),
      layer_{.number = layer, .rule = c.rule, .dropout = c.dropout, .dropout_site = name_hash(name)},
      rope_(rope),
      output_dropout_site_(name_hash(name + ".output")),
      query_(name + ".query", query_config(c, cut_, c.head_dim)),
      output_(name + ".output", output_config(c, cut_, tensor_)) {
  layer_.rule.first_head = int(cut_.heads.begin), layer_.rule.total_heads = int(c.heads);
  if (c.has_keys) key_.emplace(name + ".key", key_config(c, cut_, c.head_dim, LoraTarget::key));
  if (c.has_keys && !c.values_are_keys)
    value_.emplace(name + ".value", key_config(c, cut_, c.value_dim, LoraTarget::value));
  if (c.has_sinks) sinks_.emplace(name + ".sinks", Placement(Shape{c.heads}).cut(0, cut_.heads), Init::zeros());
  if (c.has_gate)
    gate_.emplace(name + ".gate", c.gates_heads ? head_gate_config(c, cut_) : query_config(c, cut_, c.value_dim));
  if (c.has_keys && c.has_value_norm)
    value_norm_.emplace(name + ".value_norm", tensor_.replicated_inside({c.value_dim}),
                        NormConfig{.kind = NormKind::rms, .eps = c.norm_eps, .has_weight = false});
  if (!c.has_head_norm && !c.has_norm_across) return;
  const bool has_weight = c.has_norm_weight || c.has_norm_across;
  NormConfig norm{
      .kind = NormKind::rms, .eps = c.norm_eps, .has_weight = has_weight, .has_offset = c.has_norm_offset};
  const auto width = [&](int64_t heads) { return c.has_norm_across ? heads * c.head_dim : c.head_dim; };
  if (c.has_keys) key_norm_.emplace(name + ".key_norm", tensor_.replicated_inside({width(c.kv_heads)}), norm);
  norm.initial = first_query_length(c);
  query_norm_.emplace(name + ".query_norm", tensor_.replicated_inside({width(c.heads)}), norm);
}

Var Attention::to_heads(const Var& x, const Cut& heads, bool is_first_holder, std::optional<Norm>& head_norm) {
  Var y = x;
  if (config_.has_norm_across)
    y = norm_across(tensor_, elements_of(heads, config_.head_dim), is_first_holder, y,
                    [&](const Var& all) { return (*head_norm)(all); });
  y = reshape(y, {y.value.dim(0), heads.count, config_.head_dim});
  return config_.has_head_norm && !config_.is_norm_turned ? (*head_norm)(y) : y;
}

Var Attention::gated(const Var& heads, const Var& x, const Pass& pass) {
  const Var gates = (*gate_)(x, pass);
  if (!config_.gates_heads) return gated_activation(gates, heads, Activation::sigmoid);
  const int64_t rows = gates.value.numel();
  const Var factors = reshape(activation(gates, Activation::sigmoid), {rows, 1});
  return reshape(scaled_rows(reshape(heads, {rows, config_.value_dim}), factors), heads.value.shape());
}

std::array<Var, 3> Attention::project(const Var& x, const Pass& pass, const WantedRows* wanted) {
  if (!value_) {
    const Var k = key_ ? (*key_)(x, pass) : Var();
    return {query_(wanted ? wanted->of(x) : x, wanted ? wanted->pass() : pass), k, k};
  }
  if (!wanted) return adapted_linears(x, pass, query_, *key_, *value_);
  auto [k, v] = adapted_linears(x, pass, *key_, *value_);
  return {query_(wanted->of(x), wanted->pass()), std::move(k), std::move(v)};
}

Var Attention::operator()(const Var& residual, const Pass& pass, const WantedRows* wanted, KeysAndValues* other) {
  const int64_t heads = cut_.heads.count, kv_heads = cut_.kv_heads.count;
  const Pass& asked = wanted ? wanted->pass() : pass;
  const Var x = tensor_.enter(residual);
  const auto [queries, keys, values] = project(x, pass, wanted);
  Var v = key_ ? reshape(values, {pass.num_tokens, kv_heads, config_.value_dim}) : other->values;
  if (value_norm_) v = (*value_norm_)(v);
  std::array qk{to_heads(queries, cut_.heads, true, query_norm_),
                key_ ? to_heads(keys, cut_.kv_heads, cut_.is_first_holder, key_norm_) : Var()};
  if (rope_)
    qk =
        apply(*residual.context, RopeOp{*rope_, {asked.attention.positions, pass.attention.positions}}, qk[0], qk[1]);
  if (config_.has_head_norm && config_.is_norm_turned) qk = {(*query_norm_)(qk[0]), (*key_norm_)(qk[1])};
  if (!key_) qk[1] = other->keys;
  if (key_ && other) *other = {qk[1], v};
  const Var attended = attend(layer_, asked, qk[0], qk[1], v, {sinks_ ? &*sinks_ : nullptr});
  Var y = reshape(attended, {asked.num_tokens, heads * config_.value_dim});
  if (gate_) y = gated(y, wanted ? wanted->of(x) : x, asked);
  const Var out = tensor_.leave(output_(y, asked));
  return pass.dropout(out, config_.dropout, output_dropout_site_, tensor_.tokens(pass.num_tokens).begin);
}

}  // namespace weft
