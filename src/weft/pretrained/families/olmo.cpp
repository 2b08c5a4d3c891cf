// OLMo as Hugging Face saves it: norms without weights; from 2 on norms behind attention and feed-forward parts, in 3
// with local layers; OLMoE, and FlexOlmo, of OLMo 2's blocks with experts.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_olmo {
namespace {

// All but what the angles are.
void shape_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  attention_bias_field(f, c);
}

void olmo_fields(HfFields& f, ModelConfig& c) {
  shape_fields(f, c);
  rope_fields(f, c, 10000);
  f.only_null("clip_qkv");
}

void olmo2_fields(HfFields& f, ModelConfig& c) {
  shape_fields(f, c);
  rope_fields(f, c, 10000);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
}

// Local layers are not stretched.
void olmo3_fields(HfFields& f, ModelConfig& c) {
  constexpr double kTheta = 500000;
  shape_fields(f, c);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  window_pattern_fields(f, c, nullptr);
  if (!rope_fields_by_layer(f, c, kTheta, kTheta)) {
    rope_fields(f, c, kTheta);
    c.local_rope_theta = c.rope_theta;
  }
}

void olmoe_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  olmo2_fields(f, c);
  f.only_null("clip_qkv");
  f.size("num_experts", c.experts, 64);
  f.size("num_experts_per_tok", c.experts_per_token, 8);
  f.flag("norm_topk_prob", c.norm_topk, false);
  balance_loss_field(f, c, 0.01);
}

void flex_olmo_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  shape_fields(f, c);
  rope_fields(f, c, 500000);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.size("num_experts", c.experts, 7);
  f.size("num_experts_per_tok", c.experts_per_token, 5);
  f.flag("norm_topk_prob", c.norm_topk, false);
  balance_loss_field(f, c, 0.01);
}

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), post_norm_names(), attention_names(), gated_names(), expert_names()});
  return rows;
}

}  // namespace
}  // namespace hf_olmo

std::vector<HfFamily> hf_olmo_families() {
  using namespace hf_olmo;

  return {{.family = "olmo",
           .model_type = "olmo",
           .architecture = "OlmoForCausalLM",
           .fields = olmo_fields,
           .names = names,
           .base = "model."},
          {.family = "olmo2",
           .model_type = "olmo2",
           .architecture = "Olmo2ForCausalLM",
           .fields = olmo2_fields,
           .names = names,
           .base = "model."},
          {.family = "olmo3",
           .model_type = "olmo3",
           .architecture = "Olmo3ForCausalLM",
           .fields = olmo3_fields,
           .names = names,
           .base = "model."},
          {.family = "olmoe",
           .model_type = "olmoe",
           .architecture = "OlmoeForCausalLM",
           .fields = olmoe_fields,
           .names = llama_names,
           .base = "model."},
          {.family = "flex_olmo",
           .model_type = "flex_olmo",
           .architecture = "FlexOlmoForCausalLM",
           .fields = flex_olmo_fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
