// Their defaults and shapes. Sources: Wang and Komatsuzaki, "GPT-J-6B", 2021; Black et al., "GPT-NeoX-20B", 2022;
// Zhang et al., "OPT", 2022; Almazrouei et al., "Falcon", 2023; Li et al., "StarCoder", 2023; Microsoft, "Phi-2",
// 2023; Lozhkov et al., "StarCoder 2", 2024; Bellagente et al., "Stable LM 2", 2024; NVIDIA, "Nemotron-4 340B", 2024.
#include "weft/models/layer_norm_families.h"

namespace weft {
namespace {

ModelConfig of_layer_norms(const char* family) {
  ModelConfig c;
  c.family = family;
  c.norm = NormKind::layer, c.norm_bias = true;
  return c;
}

ModelConfig without_gate(const char* family, Activation activation) {
  ModelConfig c = of_layer_norms(family);
  c.activation = activation, c.is_gated = false;
  return c;
}

// As GPT-2, but for the activation.
ModelConfig of_learned_positions(const char* family, Activation activation) {
  ModelConfig c = without_gate(family, activation);
  c.tie_embeddings = c.bias = true, c.norm_bias = false;
  c.position = PositionKind::learned;
  return c;
}

ModelConfig gpt_neox() {
  ModelConfig c = without_gate("gpt_neox", Activation::gelu);
  c.block = BlockKind::parallel;
  c.mlp_bias = c.qkv_bias = c.output_bias = true;
  return c;
}

ModelConfig falcon() {
  ModelConfig c = without_gate("falcon", Activation::gelu);
  c.block = BlockKind::parallel_shared;
  c.tie_embeddings = true;
  return c;
}

ModelConfig gptj(const char* family = "gptj") {
  ModelConfig c = without_gate(family, Activation::gelu_tanh);
  c.block = BlockKind::parallel_shared;
  c.mlp_bias = c.head_bias = true;
  return c;
}

ModelConfig gpt_j_6b() {
  ModelConfig c = gptj();
  c.layers = 28, c.hidden = 4096, c.heads = 16, c.ffn = 16384, c.rotary_dim = 64, c.vocab = 50400, c.context = 2048;
  return c;
}

ModelConfig phi() {
  ModelConfig c = gptj("phi");
  c.qkv_bias = c.output_bias = true;
  return c;
}

ModelConfig phi_2() {
  ModelConfig c = phi();
  c.layers = 32, c.hidden = 2560, c.heads = 32, c.ffn = 10240, c.rotary_dim = 32, c.vocab = 51200, c.context = 2048;
  return c;
}

ModelConfig starcoder2() {
  ModelConfig c = without_gate("starcoder2", Activation::gelu_tanh);
  c.mlp_bias = c.qkv_bias = c.output_bias = c.tie_embeddings = true;
  return c;
}

ModelConfig nemotron() {
  ModelConfig c = without_gate("nemotron", Activation::relu_squared);
  c.norm_offset = true;
  return c;
}

ModelConfig jais2() {
  ModelConfig c = without_gate("jais2", Activation::relu_squared);
  c.mlp_bias = c.qkv_bias = c.output_bias = true;
  return c;
}

}  // namespace

const std::vector<Family>& layer_norm_families() {
  static const std::vector<Family> families{{of_learned_positions("opt", Activation::relu), {}},
                                            {of_learned_positions("gpt_bigcode", Activation::gelu_tanh), {}},
                                            {gpt_neox(), {}},
                                            {falcon(), {}},
                                            {gptj(), {{"gpt-j-6b", gpt_j_6b()}}},
                                            {phi(), {{"phi-2", phi_2()}}},
                                            {of_layer_norms("stablelm"), {}},
                                            {starcoder2(), {}},
                                            {nemotron(), {}},
                                            {jais2(), {}}};
  return families;
}

}  // namespace weft
