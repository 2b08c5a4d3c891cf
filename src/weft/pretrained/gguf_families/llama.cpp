// Llama, as which Mistral and Mixtral are told too, and the architectures that differ from it in a few keys.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_llama {
namespace {

void llama_fields(GgufFields& f, ModelConfig& c) {
  if (!f.is_reading() && c.experts > 0) c.ffn = c.expert_ffn;  // what llama.cpp takes for an expert's width
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c, true);
  gguf_bias_fields(f, c);
  gguf_window_fields(f, c, 0, 0, false);
  gguf_expert_fields(f, c);
}

// Ministral 3, and Mistral Small of 2025. What angles are multiplied by is said beside what yarn implies.
void mistral3_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kMultiplier = "rope.scaling.yarn_log_multiplier";
  RopeScaling& s = c.rope_scaling;
  const auto implied = [&](double multiplier) {
    RopeScaling plain = s;
    plain.attention_factor = 0, plain.mscale = 1, plain.mscale_all = multiplier;
    return plain.rotation_factor(c.context);
  };
  double multiplier = s.kind == RopeScaling::Kind::yarn && s.attention_factor == 1 ? 1 : 0;
  if (!f.is_reading() && multiplier > 0) s.attention_factor = 0;
  llama_fields(f, c);
  if (s.kind != RopeScaling::Kind::yarn) return;
  if (f.is_reading() || multiplier > 0) f.number(kMultiplier, multiplier, 0);
  if (f.is_reading() && multiplier > 0)
    s.attention_factor = s.rotation_factor(c.context) * implied(multiplier) / implied(0);
  if (f.is_reading() || s.query_beta > 0) f.number("attention.temperature_scale", s.query_beta, 0);
}

// Logits are divided by a number.
void granite_fields(GgufFields& f, ModelConfig& c) {
  gguf_biased_fields(f, c);
  if (!f.is_reading() && c.attention_scale == 0) c.attention_scale = c.score_scale();
  f.number("attention.scale", c.attention_scale, 0);
  f.number("embedding_scale", c.embedding_scale, 1);
  f.number("residual_scale", c.residual_scale, 1);
  double divisor = 1 / double(c.logit_scale);
  f.number("logit_scale", divisor, 1);
  if (!(divisor > 0)) f.refuse("logit_scale", "it must be above 0");
  c.logit_scale = float(1 / divisor);
}

void granite_moe_fields(GgufFields& f, ModelConfig& c) {
  if (!f.is_reading() && c.experts > 0) c.ffn = c.expert_ffn;
  granite_fields(f, c);
  gguf_expert_fields(f, c);
  if (c.experts == 0) return;
  if (f.is_reading() || c.shared_experts > 0) gguf_shared_width_field(f, c);
}

// Layers of Mamba-2 are those without heads of keys.
void granite_hybrid_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kRotated = "rope.scaling.finetuned";
  gguf_attending_layers_fields(f, c, granite_moe_fields);
  bool is_rotated = c.unrotated_every == 0;
  f.flag(kRotated, is_rotated, false);
  c.unrotated_every = is_rotated ? 0 : 1;
  gguf_state_fields(f, c);
  c.state_conv_bias = true;
}
std::span<const NameRow> granite_hybrid_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({gguf_mamba_names(), gguf_paired_names(c)});
  return rows;
}

void ernie_moe_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kStep = "interleave_moe_layer_step";
  gguf_biased_fields(f, c);
  gguf_expert_fields(f, c);
  f.size("expert_shared_count", c.shared_experts, 0);
  f.size("leading_dense_block_count", c.first_dense_layers, 0);
  int64_t step = 1, width = c.shared_experts * c.expert_ffn;
  f.size(kStep, step, 1);
  if (step != 1) f.refuse(kStep, "every layer from one on must have experts");
  if (!f.is_reading()) f.set("expert_shared_feed_forward_length", width);
  if (f.is_reading()) c.router_bias = f.from().has_router_bias;
}

// llama.cpp knows that every fourth layer sees no positions.
void smollm3_fields(GgufFields& f, ModelConfig& c) {
  constexpr int64_t kUnrotatedEvery = 4;
  gguf_biased_fields(f, c);
  c.unrotated_every = kUnrotatedEvery;
}

constexpr NameRow kSeedNorm[] = {{"layers.#.mlp_norm", "blk.#.post_attention_norm"}};
std::span<const NameRow> seed_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kSeedNorm), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_llama

std::vector<GgufFamily> gguf_llama_families() {
  using namespace gguf_llama;

  return {{"llama", "llama", llama_fields, gguf_paired_names},
          {"mistral3", "ministral3", mistral3_fields, gguf_paired_names},
          {"granite", "granite", granite_fields, gguf_paired_names},
          {"granitemoe", "granitemoe", granite_moe_fields, gguf_paired_names},
          {"granitehybrid", "granitemoehybrid", granite_hybrid_fields, granite_hybrid_names},
          {"ernie4_5-moe", "ernie4_5_moe", ernie_moe_fields, gguf_paired_names},
          {"smollm3", "smollm3", smollm3_fields, gguf_paired_names},
          {"arcee", "arcee", gguf_biased_fields, gguf_paired_names},
          {"ernie4_5", "ernie4_5", gguf_biased_fields, gguf_paired_names},
          {"seed_oss", "seed_oss", gguf_biased_fields, seed_names}};
}

}  // namespace weft
