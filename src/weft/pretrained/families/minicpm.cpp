// OpenBMB's MiniCPM3 as Hugging Face saves it: latent attention as in DeepSeek-V2, whose turned elements lie in
// halves, and a factor at each end and at each sum.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_minicpm {
namespace {

// What is added to the residual stream is multiplied by scale_depth over the root of the number of layers; null:
// by 1.
void residual_scale_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kKey = "scale_depth";
  const double root = std::sqrt(double(std::max<int64_t>(c.layers, 1)));
  double depth = double(c.residual_scale) * root;
  const double rounded = std::round(depth * 1e6) / 1e6;  // as people write it, where that means the same
  if (float(rounded / root) == c.residual_scale) depth = rounded;
  f.number(kKey, depth, f.is_null(kKey) ? root : 1.4);
  if (f.is_reading() && !(depth > 0)) f.refuse(kKey, "it must be above 0");
  if (f.is_reading()) c.residual_scale = float(depth / root);
}

// Logits are divided by the width of the model over dim_model_base; null: by 1.
void logit_scale_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kKey = "dim_model_base";
  int64_t base = std::llround(double(c.logit_scale) * double(c.hidden));
  f.size(kKey, base, f.is_null(kKey) ? c.hidden : 256);
  if (f.is_reading() && base == 0) f.refuse(kKey, "it must be above 0");
  if (f.is_reading()) c.logit_scale = float(double(base) / double(c.hidden));
}

void stretch_field(HfFields& f, ModelConfig& c) {
  rope_fields(f, c, 10000);
  if (!f.is_reading() && c.rope_scaling.kind == RopeScaling::Kind::longrope)
    f.to()["rope_scaling"]["original_max_position_embeddings"] = c.rope_scaling.original_context;
}

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("max_position_embeddings", c.context, 32768);
  latent_attention_fields(f, c, 768, width_of_head(c));
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "hidden_act", c.activation, "silu");
  f.flag("mlp_bias", c.mlp_bias, false);
  stretch_field(f, c);
  f.number("scale_emb", c.embedding_scale, 12);
  residual_scale_field(f, c);
  logit_scale_field(f, c);
}

constexpr NameRow kKey[] = {{"layers.#.attention.key_rotary",
                             "model.layers.#.self_attn.kv_a_proj_with_mqa",
                             {.part = Part::key_rotary, .has_halves = true}}};
constexpr NameRow kQuery[] = {{"layers.#.attention.query",
                               "model.layers.#.self_attn.q_b_proj",
                               {.part = Part::latent_query, .has_halves = true}}};
constexpr NameRow kDirectQuery[] = {{"layers.#.attention.query",
                                     "model.layers.#.self_attn.q_proj",
                                     {.part = Part::latent_query, .has_halves = true}}};

const std::vector<NameRow>& names(const ModelConfig& c) {
  const auto rows_with = [](std::span<const NameRow> query) {
    return joined({query, std::span(kKey), outer_names(), pre_norm_names(), latent_attention_names({.query_rank = 1}),
                   gated_names()});
  };
  static const std::vector<NameRow> rows = rows_with(kQuery), direct = rows_with(kDirectQuery);
  return c.query_rank > 0 ? rows : direct;
}

}  // namespace
}  // namespace hf_minicpm

std::vector<HfFamily> hf_minicpm_families() {
  using namespace hf_minicpm;

  return {llama_family("minicpm3", "MiniCPM3ForCausalLM", fields, names)};
}

}  // namespace weft
