// The variants' defaults. Sources: Groeneveld et al., "OLMo", 2024; OLMo 2, 2025; Gemma 2, 2024; Gemma 3, 2025; Black
// et al., "GPT-NeoX-20B", 2022; Almazrouei et al., "Falcon", 2023; DeepSeek-AI, "DeepSeek-V2" and "V3", 2024.
#include "weft/models/variants.h"

namespace weft {
namespace {

ModelConfig named(const char* family) {
  ModelConfig c;
  c.family = family;
  return c;
}

ModelConfig olmo() {
  ModelConfig c = named("olmo");
  c.norm = NormKind::layer, c.norm_weight = false;
  return c;
}

ModelConfig olmo2() {
  ModelConfig c = named("olmo2");
  c.block = BlockKind::post, c.qk_norm_across = true;
  return c;
}

ModelConfig gemma(const char* family) {
  ModelConfig c = named(family);
  c.block = BlockKind::both, c.norm_offset = true, c.norm_eps = 1e-6f;
  c.activation = Activation::gelu_tanh;
  c.tie_embeddings = true;
  return c;
}

ModelConfig gemma3() {
  ModelConfig c = gemma("gemma3");
  c.qk_norm = true;
  return c;
}

ModelConfig gpt_neox() {
  ModelConfig c = named("gpt_neox");
  c.block = BlockKind::parallel;
  c.norm = NormKind::layer, c.norm_bias = c.mlp_bias = c.qkv_bias = c.output_bias = true;
  c.activation = Activation::gelu, c.is_gated = false;
  return c;
}

ModelConfig falcon() {
  ModelConfig c = named("falcon");
  c.block = BlockKind::parallel_shared;
  c.norm = NormKind::layer, c.norm_bias = true;
  c.activation = Activation::gelu, c.is_gated = false;
  c.tie_embeddings = true;
  return c;
}

ModelConfig deepseek(const char* family) {
  ModelConfig c = named(family);
  c.norm_eps = 1e-6f;
  return c;
}

ModelConfig deepseek_v3() {
  ModelConfig c = deepseek("deepseek_v3");
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

}  // namespace

const std::vector<Family>& variant_families() {
  static const std::vector<Family> families{
      {olmo(), {}},     {olmo2(), {}},  {gemma("gemma2"), {}},         {gemma3(), {}},
      {gpt_neox(), {}}, {falcon(), {}}, {deepseek("deepseek_v2"), {}}, {deepseek_v3(), {}}};
  return families;
}

}  // namespace weft
