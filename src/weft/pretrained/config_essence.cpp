// Fields that say nothing, one after the other.
#include "weft/pretrained/config_essence.h"

#include <cmath>

namespace weft {

ModelConfig essence(ModelConfig c) {
  const ModelConfig neutral;
  c.family = neutral.family;
  c.dropout = neutral.dropout, c.init_std = neutral.init_std;
  c.capacity_factor = neutral.capacity_factor, c.aux_loss = neutral.aux_loss, c.z_loss = neutral.z_loss;
  c.mtp_loss = neutral.mtp_loss;
  c.qkv_bias = c.has_qkv_bias(), c.output_bias = c.has_output_bias(), c.mlp_bias = c.has_mlp_bias();
  c.norm_bias = c.has_norm_bias(), c.bias = false;
  c.router_bias = c.has_router_bias(), c.router_bias_rate = 0;
  if (c.global_head_dim == 0 && c.attention_scale == 1 / std::sqrt(float(c.head_dim))) c.attention_scale = 0;
  if (c.position == PositionKind::learned) c.rope_theta = neutral.rope_theta, c.rotary_dim = neutral.rotary_dim;
  const ModelConfig told = c;
  c.unrotated_every = 0, c.unrotated_layers.clear();
  for (int64_t i = 0; i < c.layers; ++i)
    if (told.position == PositionKind::rope && !told.is_rotated(i)) c.unrotated_layers.push_back(i);
  if (int64_t(c.unrotated_layers.size()) == c.layers) c.rope_theta = neutral.rope_theta;  // nothing turns
  if (c.rope_scaling.kind == RopeScaling::Kind::none) c.rope_scaling = neutral.rope_scaling;
  if (c.rope_scaling.kind == RopeScaling::Kind::longrope) c.rope_scaling.factor = 1;
  if (!c.qk_norm || c.position == PositionKind::learned) c.qk_norm_turned = false;
  if (!c.qk_norm) c.qk_norm_weight = true;
  if (!c.has_unrotated()) c.unrotated_query_beta = neutral.unrotated_query_beta;
  if (c.unrotated_query_beta == 0) c.unrotated_query_interval = neutral.unrotated_query_interval;
  if (c.has_states()) {
    c.attention_every = 1, c.attention_layers.clear();
    for (int64_t i = 0; i < c.layers; ++i)
      if (told.has_mixer(i) && !told.is_recurrent(i)) c.attention_layers.push_back(i);
    if (c.attention_layers.empty()) c.attention_every = c.layers + 1;
  }
  if (!c.has_head) c.has_head = c.tie_embeddings = true;  // it is not read
  if (c.window == 0) c.local_rope_theta = 0;
  c.first_local_layer = c.global_every = 0, c.global_layers.clear();
  for (int64_t i = 0; i < c.layers; ++i)
    if (told.is_global(i)) c.global_layers.push_back(i);
  if (c.rope_scaling.kind == RopeScaling::Kind::proportional) {
    const auto pairs = double(c.global_turned_dim() / 2);
    c.rope_scaling.original_context = 0;
    c.rope_scaling.turned_share = std::floor(c.rope_scaling.turned_share * pairs) / pairs;
  }
  if (c.local_rope_theta == c.rope_theta && c.rope_scaling.kind == RopeScaling::Kind::none) c.local_rope_theta = 0;
  if (c.experts == 0) {
    c.experts_per_token = neutral.experts_per_token, c.shared_experts = neutral.shared_experts;
    c.expert_ffn = neutral.expert_ffn, c.expert_latent_dim = neutral.expert_latent_dim;
    c.first_dense_layers = neutral.first_dense_layers, c.expert_layers.clear();
    c.router_weighs_inputs = neutral.router_weighs_inputs;
    c.router = neutral.router, c.router_bias = neutral.router_bias;
    c.expert_groups = neutral.expert_groups, c.groups_per_token = neutral.groups_per_token;
    c.expert_bias = neutral.expert_bias, c.shared_gate = neutral.shared_gate;
    c.experts_beside_dense = neutral.experts_beside_dense, c.expert_post_norm = neutral.expert_post_norm;
    c.norm_topk = neutral.norm_topk, c.routed_scale = neutral.routed_scale;
  }
  if (c.expert_groups == c.groups_per_token) c.expert_groups = c.groups_per_token = 1;
  if (!c.router_bias && c.expert_groups == 1) c.router_ranks_logits = false;
  if (!c.has_dense_layers() && !c.experts_beside_dense) c.ffn = 0;  // nothing has this width
  return c;
}

}  // namespace weft
