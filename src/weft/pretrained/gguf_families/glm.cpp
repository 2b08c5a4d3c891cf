// GLM-4 of 2025, and GLM-4.5 to 4.7 with experts.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_glm {
namespace {

void glm4_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_bias_fields(f, c);
}

// The layers that predict a token further on count as blocks.
void layer_fields(GgufFields& f, ModelConfig& c) {
  int64_t further = 0;
  f.size("nextn_predict_layers", further, 0);
  if (further >= c.layers && f.is_reading()) f.refuse("nextn_predict_layers", "there must be more blocks than that");
  c.layers -= further;
}

void glm4_moe_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  layer_fields(f, c);
  gguf_scaling_fields(f, c);
  if (f.is_reading()) c.qkv_bias = f.from().has_qkv_bias, c.qk_norm = f.from().has_head_norm;
  gguf_expert_fields(f, c);
  f.size("expert_shared_count", c.shared_experts, 0);
  f.size("leading_dense_block_count", c.first_dense_layers, 0);
  f.size("expert_group_count", c.expert_groups, 1);
  f.size("expert_group_used_count", c.groups_per_token, 1);
  f.flag("expert_weights_norm", c.norm_topk, true);
  f.number("expert_weights_scale", c.routed_scale, 1);
  gguf_sigmoid_field(f);
}

std::span<const NameRow> glm4_names() {
  static const std::vector<NameRow> rows = joined({gguf_fused_gate(), gguf_paired_names()});
  return rows;
}

constexpr NameRow kNorm[] = {{"layers.#.mlp_norm", "blk.#.post_attention_norm"}};
std::span<const NameRow> moe_names() {
  static const std::vector<NameRow> rows = joined({std::span(kNorm), gguf_halved_names()});
  return rows;
}

}  // namespace
}  // namespace gguf_glm

std::vector<GgufFamily> gguf_glm_families() {
  using namespace gguf_glm;

  return {{"glm4", "glm4", glm4_fields, glm4_names()}, {"glm4moe", "glm4_moe", glm4_moe_fields, moe_names()}};
}

}  // namespace weft
