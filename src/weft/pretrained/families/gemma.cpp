// Gemma as Hugging Face saves it; from 2 on with norms on both sides, local layers between global ones, caps.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_gemma {
namespace {

// Scores are divided by the root of a number that has a key of its own, which newer versions take whole only.
void score_scale_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kKey = "query_pre_attn_scalar";
  if (!f.is_reading()) c.attention_scale = c.score_scale();
  double divisor = c.attention_scale > 0 ? 1 / (double(c.attention_scale) * double(c.attention_scale)) : 0;
  if (std::abs(divisor - std::round(divisor)) < 1e-4 * divisor) divisor = std::round(divisor);
  f.number(kKey, divisor, 256);
  if (!(divisor > 0)) f.refuse(kKey, "it must be above 0");
  if (!f.is_reading() && divisor == std::round(divisor)) f.to()[kKey] = int64_t(divisor);
  c.attention_scale = float(1 / std::sqrt(divisor));
}

// Absent or null: no cap.
void cap_field(HfFields& f, const char* key, float& cap, double otherwise) {
  if (f.is_reading() && f.from().raw().contains(key) && !f.has(key))
    cap = 0;
  else if (f.is_reading() || cap > 0)
    f.number(key, cap, otherwise);
  else
    f.to()[key] = nullptr;
}

// The activation is what hidden_activation says: the first files had another beside it, which nothing reads.
void common_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("head_dim", c.head_dim, 256);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "hidden_activation", c.activation, "gelu_pytorch_tanh");
  attention_bias_field(f, c);
  c.embedding_scale = float(std::sqrt(double(c.hidden)));
}

void gemma_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  rope_fields(f, c, 10000);
  f.only("use_bidirectional_attention", false);
  if (!f.is_reading()) f.to()["hidden_act"] = f.to()["hidden_activation"];  // the key of later versions
}

void local_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  score_scale_field(f, c);
  f.size("sliding_window", c.window, 4096);
}

void gemma2_fields(HfFields& f, ModelConfig& c) {
  local_fields(f, c);
  rope_fields(f, c, 10000);
  cap_field(f, "attn_logit_softcapping", c.attention_softcap, 50);
  cap_field(f, "final_logit_softcapping", c.logit_softcap, 30);
  if (f.is_reading()) c.global_every = 2;
  layer_types_field(f, c);
}

// Local layers have angles of their own.
void gemma3_rope_fields(HfFields& f, ModelConfig& c) {
  if (rope_fields_by_layer(f, c, 1e6, 10000)) return;
  rope_fields(f, c, 1e6);
  f.number("rope_local_base_freq", c.local_rope_theta, 10000);
}

void gemma3_fields(HfFields& f, ModelConfig& c) {
  local_fields(f, c);
  gemma3_rope_fields(f, c);
  cap_field(f, "attn_logit_softcapping", c.attention_softcap, 0);
  cap_field(f, "final_logit_softcapping", c.logit_softcap, 0);
  f.size("sliding_window_pattern", c.global_every, 6);
  f.only("use_bidirectional_attention", false);
  layer_types_field(f, c);
}

constexpr NameRow kNorms[] = {{"layers.#.attention_norm", "model.layers.#.input_layernorm"},
                              {"layers.#.attention_post_norm", "model.layers.#.post_attention_layernorm"},
                              {"layers.#.mlp_norm", "model.layers.#.pre_feedforward_layernorm"},
                              {"layers.#.mlp_post_norm", "model.layers.#.post_feedforward_layernorm"}};

const std::vector<NameRow>& gemma_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), gated_names()});
  return rows;
}
const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), std::span(kNorms), attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_gemma

std::vector<HfFamily> hf_gemma_families() {
  using namespace hf_gemma;

  return {{.family = "gemma",
           .model_type = "gemma",
           .architecture = "GemmaForCausalLM",
           .fields = gemma_fields,
           .names = gemma_names,
           .base = "model."},
          {.family = "gemma2",
           .model_type = "gemma2",
           .architecture = "Gemma2ForCausalLM",
           .fields = gemma2_fields,
           .names = names,
           .base = "model."},
          {.family = "gemma3",
           .model_type = "gemma3_text",
           .architecture = "Gemma3ForCausalLM",
           .fields = gemma3_fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
