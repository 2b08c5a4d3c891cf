// GLM as Hugging Face saves it: half of each head turns; GLM-4 of 2025 has norms on both sides; GLM-4.5 to 4.7 are
// experts as DeepSeek-V3 has them beside ordinary attention. So are dots.llm1, Solar Open and
// Sarvam 30B.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_glm {
namespace {

constexpr const char* kPartial = "partial_rotary_factor";
constexpr double kTheta = 10000, kShare = 0.5;

void dense_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 2, .norm_eps = 1.5625e-7});
  rope_fields(f, c, kTheta, kPartial, kShare);
  f.flag("attention_bias", c.qkv_bias, true);
}

void moe_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.kv_heads = 8, .norm_eps = 1e-5});
  rope_fields(f, c, kTheta, kPartial, kShare);
  f.flag("attention_bias", c.qkv_bias, false);
  f.flag("use_qk_norm", c.qk_norm, false);
  deepseek_expert_fields(f, c);
  f.flag("norm_topk_prob", c.norm_topk, true);
}

void sarvam_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 64, .kv_heads = 4});
  rope_fields(f, c, 8e6, kPartial);
  f.flag(either(f, "attention_bias", "use_qkv_bias"), c.qkv_bias, false);
  f.flag("use_qk_norm", c.qk_norm, true);
  deepseek_expert_fields(f, c, {.shared = 1, .first_dense = 1, .scale = 2.5});
  f.flag("norm_topk_prob", c.norm_topk, true);
}

void solar_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5});
  rope_fields(f, c, 1e6, kPartial);
  deepseek_expert_fields(f, c);
  f.flag("norm_topk_prob", c.norm_topk, true);
}

void dots_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c);
  rope_fields(f, c, kTheta);
  attention_bias_field(f, c);
  window_field(f, c, 4096);
  last_layers_local_fields(f, c, 62);
  deepseek_expert_fields(f, c);
  f.flag("norm_topk_prob", c.norm_topk, false);
}

constexpr NameRow kGateUp[] = {{"layers.#.mlp.gate", "model.layers.#.mlp.gate_up_proj", {.part = Part::gate}},
                               {"layers.#.mlp.up", "model.layers.#.mlp.gate_up_proj", {.part = Part::up}},
                               {"layers.#.mlp.down", "model.layers.#.mlp.down_proj"}};
constexpr NameRow kNormsOnBothSides[] = {{"layers.#.attention_norm", "model.layers.#.input_layernorm"},
                                         {"layers.#.attention_post_norm", "model.layers.#.post_self_attn_layernorm"},
                                         {"layers.#.mlp_norm", "model.layers.#.post_attention_layernorm"},
                                         {"layers.#.mlp_post_norm", "model.layers.#.post_mlp_layernorm"}};
constexpr NameRow kRouterBias[] = {{"layers.#.moe.router.bias", "model.layers.#.mlp.gate.e_score_correction_bias"}};

// Of Sarvam 30B, whose files have other names than the library's own.
constexpr NameRow kSarvam[] = {
    {"embedding", "model.word_embeddings"},
    {"layers.#.attention.query", "model.layers.#.attention.query_key_value", {.part = Part::query}},
    {"layers.#.attention.key", "model.layers.#.attention.query_key_value", {.part = Part::key}},
    {"layers.#.attention.value", "model.layers.#.attention.query_key_value", {.part = Part::value}},
    {"layers.#.attention.output", "model.layers.#.attention.dense"},
    {"layers.#.attention.query_norm", "model.layers.#.attention.query_layernorm"},
    {"layers.#.attention.key_norm", "model.layers.#.attention.key_layernorm"},
    {"layers.#.moe.router.bias", "model.layers.#.mlp.gate.expert_bias"},
};

const std::vector<NameRow>& glm_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), paired_attention_names(), std::span(kGateUp)});
  return rows;
}
const std::vector<NameRow>& glm4_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), std::span(kNormsOnBothSides), paired_attention_names(), std::span(kGateUp)});
  return rows;
}
const std::vector<NameRow>& moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kRouterBias), std::span(llama_names(c))});
  return rows;
}

const std::vector<NameRow>& sarvam_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kSarvam), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_glm

std::vector<HfFamily> hf_glm_families() {
  using namespace hf_glm;

  return {{.family = "glm",
           .model_type = "glm",
           .architecture = "GlmForCausalLM",
           .fields = dense_fields,
           .names = glm_names,
           .base = "model."},
          {.family = "glm4",
           .model_type = "glm4",
           .architecture = "Glm4ForCausalLM",
           .fields = dense_fields,
           .names = glm4_names,
           .base = "model."},
          {.family = "glm4_moe",
           .model_type = "glm4_moe",
           .architecture = "Glm4MoeForCausalLM",
           .fields = moe_fields,
           .names = moe_names,
           .base = "model.",
           .mtp = deepseek_mtp_names()},
          {.family = "solar_open",
           .model_type = "solar_open",
           .architecture = "SolarOpenForCausalLM",
           .fields = solar_fields,
           .names = moe_names,
           .base = "model."},
          {.family = "dots1",
           .model_type = "dots1",
           .architecture = "Dots1ForCausalLM",
           .fields = dots_fields,
           .names = moe_names,
           .base = "model."},
          {.family = "sarvam_moe",
           .model_type = "sarvam_moe",
           .architecture = "Glm4MoeForCausalLM",
           .fields = sarvam_fields,
           .names = sarvam_names,
           .base = "model."}};
}

}  // namespace weft
