// Attention: the forward pass of one layer's attention.
#include "weft/nn/attention.h"

#include <cmath>

#include "weft/autograd/ops/dropout.h"
#include "weft/autograd/ops/reshape.h"

namespace weft {

Attention::Attention(const std::string& name, int layer, const AttentionConfig& c, const RopeTable* rope)
    : config_(c),
      layer_(layer),
      rope_(rope),
      attention_dropout_site_(name_hash(name)),
      output_dropout_site_(name_hash(name + ".output")),
      query_(name + ".query", c.hidden, c.heads * c.head_dim, c.has_bias, c.init_std),
      key_(name + ".key", c.hidden, c.kv_heads * c.head_dim, c.has_bias, c.init_std),
      value_(name + ".value", c.hidden, c.kv_heads * c.head_dim, c.has_bias, c.init_std),
      output_(name + ".output", c.heads * c.head_dim, c.hidden, c.has_bias, c.output_init_std) {
  if (c.has_qk_norm) {
    query_norm_.emplace(name + ".query_norm", NormKind::rms, c.head_dim, false, c.norm_eps);
    key_norm_.emplace(name + ".key_norm", NormKind::rms, c.head_dim, false, c.norm_eps);
  }
}

Var Attention::place(const Var& x, int64_t heads, std::optional<Norm>& head_norm, const Pass& pass) {
  Var y = reshape(x, {pass.num_tokens, heads, config_.head_dim});
  if (head_norm) y = (*head_norm)(y);
  if (rope_) y = apply(*x.context, RopeOp{*rope_, pass.attention.positions}, y);
  return y;
}

Var Attention::attend(const Var& q, const Var& k, const Var& v, const Pass& pass) const {
  const float scale = 1 / std::sqrt(float(config_.head_dim));
  const DropoutKey dropout = pass.attention_dropout(config_.dropout, attention_dropout_site_);
  if (!pass.context_plan) {
    return apply(*q.context, AttentionOp{.plan = pass.attention, .layer = layer_, .scale = scale, .dropout = dropout},
                 q, k, v);
  }
  return context_attention(q, k, v,
                           {.parallel = *pass.context_parallel,
                            .plan = *pass.context_plan,
                            .scale = scale,
                            .dropout = dropout,
                            .first_head = pass.attention.first_head,
                            .total_heads = pass.attention.total_heads});
}

Var Attention::operator()(const Var& x, const Pass& pass) {
  const auto [q, k, v] = linears(x, query_.weights(), key_.weights(), value_.weights());
  const Var y = attend(place(q, config_.heads, query_norm_, pass), place(k, config_.kv_heads, key_norm_, pass),
                       reshape(v, {pass.num_tokens, config_.kv_heads, config_.head_dim}), pass);
  const Var out = output_(reshape(y, {pass.num_tokens, config_.heads * config_.head_dim}));
  return dropout(out, pass.dropout(config_.dropout, output_dropout_site_, config_.hidden));
}

}  // namespace weft
