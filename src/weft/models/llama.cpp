// The Llama family. Sources of the shapes: Touvron et al., 2023; Zhang et al., "TinyLlama", 2024; Llama 3, 2024; with
// experts, Jiang et al., "Mixtral of Experts", 2024, and Yang et al., "Qwen3 Technical Report", 2025; "Qwen2.5
// Technical Report", 2024.
#include "weft/models/llama.h"

namespace weft {
namespace {

struct Size {
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, context;
};

ModelConfig shape(const Size& s, double rope_theta, bool is_tied) {
  ModelConfig c;
  c.family = "llama";
  c.layers = s.layers, c.hidden = s.hidden, c.heads = s.heads, c.kv_heads = s.kv_heads;
  c.ffn = s.ffn, c.vocab = s.vocab, c.context = s.context;
  c.rope_theta = rope_theta;
  c.tie_embeddings = is_tied;
  return c;
}

ModelConfig named(const char* family, ModelConfig c) {
  c.family = family;
  return c;
}

ModelConfig qwen2(ModelConfig c = {}) {
  c.qkv_bias = true, c.norm_eps = 1e-6f, c.rope_theta = 1e6;
  return named("qwen2", c);
}
ModelConfig qwen2_5(const Size& s, bool is_tied) { return qwen2(shape(s, 1e6, is_tied)); }

ModelConfig qwen3() {
  ModelConfig c;
  c.qk_norm = true, c.norm_eps = 1e-6f, c.rope_theta = 1e6;
  return c;
}

ModelConfig qwen3(const char* family, const Size& s, bool is_tied) {
  ModelConfig c = named(family, shape(s, 1e6, is_tied));
  c.head_dim = 128, c.qk_norm = true, c.norm_eps = 1e-6f;
  return c;
}

ModelConfig qwen2_moe() {
  ModelConfig c = named("qwen2_moe", qwen2());
  c.experts_per_token = c.shared_experts = 4, c.norm_topk = false, c.shared_gate = true;
  return c;
}

ModelConfig hunyuan(const char* family) {
  ModelConfig c = named(family, {});
  c.qk_norm = c.qk_norm_turned = true;
  return c;
}

// Boizard et al., "EuroBERT: Scaling Multilingual Encoders for European Languages", 2025.
ModelConfig eurobert() {
  ModelConfig c = named("eurobert", {});
  c.bidirectional = true, c.rope_theta = 250000;
  return c;
}

ModelConfig helium() {
  ModelConfig c = named("helium", {});
  c.norm_eps = 1e-8f, c.rope_theta = 1e5;
  return c;
}

ModelConfig cwm() {
  ModelConfig c = named("cwm", {});
  c.rope_theta = 1e6;
  return c;
}

ModelConfig ministral3() {
  ModelConfig c = named("ministral3", {});
  c.head_dim = 128, c.rope_theta = 1e6;
  return c;
}

ModelConfig seed_oss() {
  ModelConfig c = named("seed_oss", {});
  c.qkv_bias = true, c.norm_eps = 1e-6f;
  return c;
}

ModelConfig ernie4_5() {
  ModelConfig c = named("ernie4_5", {});
  c.tie_embeddings = true, c.rope_theta = 500000;
  return c;
}

ModelConfig ernie4_5_moe() {
  ModelConfig c = ernie4_5();
  c.family = "ernie4_5_moe", c.router_bias = true;
  return c;
}

ModelConfig gpt_oss() {
  ModelConfig c = named("gpt_oss", {});
  c.qkv_bias = c.output_bias = c.expert_bias = true, c.attention_sinks = true;
  c.activation = Activation::swiglu_oai;
  c.head_dim = 64, c.window = 128, c.global_every = 2;
  c.experts_per_token = 4;
  c.rope_theta = 150000;
  return c;
}
// Layers and experts of the published sizes; source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025.
ModelConfig gpt_oss(int64_t layers, int64_t experts) {
  ModelConfig c = gpt_oss();
  c.layers = layers, c.hidden = 2880, c.heads = 64, c.kv_heads = 8, c.ffn = 2880, c.vocab = 201088;
  c.context = 131072, c.experts = experts;
  RopeScaling& s = c.rope_scaling;
  s.kind = RopeScaling::Kind::yarn, s.factor = 32, s.original_context = 4096, s.is_ramp_exact = true;
  return c;
}

// Layers that attend in chunks between those without positions; source: Meta, "The Llama 4 herd", 2025.
ModelConfig llama4() {
  ModelConfig c = named("llama4", {});
  c.head_dim = 128, c.rope_theta = 500000;
  c.window = 8192, c.chunked_window = true;
  c.global_every = c.unrotated_every = 4, c.unrotated_query_beta = 0.1;
  c.qk_norm = c.qk_norm_turned = true, c.qk_norm_weight = false;
  c.experts_per_token = c.shared_experts = 1, c.norm_topk = false;
  c.router = RouterGate::sigmoid, c.router_weighs_inputs = true;
  return c;
}
ModelConfig llama4(int64_t experts, int64_t context) {
  ModelConfig c = llama4();
  c.layers = 48, c.hidden = 5120, c.heads = 40, c.kv_heads = 8, c.ffn = 16384, c.vocab = 202048;
  c.context = context, c.experts = experts, c.expert_ffn = 8192;
  return c;
}
ModelConfig llama4_scout() {
  ModelConfig c = llama4(16, 10485760);
  c.rope_scaling = {.kind = RopeScaling::Kind::llama3,
                    .factor = 16,
                    .original_context = 8192,
                    .low_freq_factor = 1,
                    .high_freq_factor = 1};
  return c;
}
ModelConfig llama4_maverick() {
  ModelConfig c = llama4(128, 1048576);
  c.qk_norm = c.qk_norm_turned = false, c.qk_norm_weight = true;
  for (int64_t i = 1; i < c.layers; i += 2) c.expert_layers.push_back(i);
  return c;
}

// Qwen3-Next and Qwen3.5: three of four layers are of the gated delta rule, and attention is gated.
ModelConfig qwen3_5(const char* family) {
  ModelConfig c = named(family, qwen3());
  c.norm_offset = true, c.attention_gate = true, c.attention_every = 4;
  return c;
}
ModelConfig qwen3_5_with_experts(const char* family) {
  ModelConfig c = qwen3_5(family);
  c.shared_experts = 1, c.shared_gate = true;
  return c;
}

ModelConfig mixtral_8x7b() {
  ModelConfig c = named("mixtral", shape({32, 4096, 32, 8, 14336, 32000, 32768}, 1e6, false));
  c.experts = 8, c.experts_per_token = 2, c.aux_loss = 0.02f;
  return c;
}

ModelConfig qwen3_moe(const Size& s, int64_t expert_ffn) {
  ModelConfig c = qwen3("qwen3_moe", s, false);
  c.experts = 128, c.experts_per_token = 8, c.expert_ffn = expert_ffn, c.aux_loss = 0.001f;
  return c;
}

ModelConfig qwen3_next_80b_a3b() {
  ModelConfig c = qwen3_5_with_experts("qwen3_next");
  c.layers = 48, c.hidden = 2048, c.heads = 16, c.kv_heads = 2, c.ffn = 5120, c.vocab = 151936, c.context = 262144;
  c.head_dim = 256, c.rotary_dim = 64, c.rope_theta = 1e7;
  c.state_heads = 32, c.state_key_heads = 16, c.state_key_dim = c.state_value_dim = 128, c.state_conv = 4;
  c.experts = 512, c.experts_per_token = 10, c.expert_ffn = 512, c.aux_loss = 0.001f;
  return c;
}

ModelConfig llama_3_1(const Size& s) {
  ModelConfig c = shape(s, 5e5, false);
  c.rope_scaling = {.kind = RopeScaling::Kind::llama3,
                    .factor = 8,
                    .original_context = 8192,
                    .low_freq_factor = 1,
                    .high_freq_factor = 4};
  return c;
}

using Presets = std::vector<std::pair<std::string, ModelConfig>>;

const Presets& qwen2_presets() {
  static const Presets presets{{"qwen2.5-0.5b", qwen2_5({24, 896, 14, 2, 4864, 151936, 32768}, true)},
                               {"qwen2.5-1.5b", qwen2_5({28, 1536, 12, 2, 8960, 151936, 32768}, true)},
                               {"qwen2.5-3b", qwen2_5({36, 2048, 16, 2, 11008, 151936, 32768}, true)},
                               {"qwen2.5-7b", qwen2_5({28, 3584, 28, 4, 18944, 152064, 32768}, false)}};
  return presets;
}

const Presets& llama_presets() {
  static const Presets presets{{"llama-1b", shape({22, 2048, 32, 4, 5632, 32000, 2048}, 1e4, false)},
                               {"llama-3.2-1b", shape({16, 2048, 32, 8, 8192, 128256, 8192}, 5e5, true)},
                               {"llama-3.2-3b", shape({28, 3072, 24, 8, 8192, 128256, 8192}, 5e5, true)},
                               {"llama-3-8b", shape({32, 4096, 32, 8, 14336, 128256, 8192}, 5e5, false)},
                               {"llama-3.1-8b", llama_3_1({32, 4096, 32, 8, 14336, 128256, 131072})},
                               {"llama-3.1-405b", llama_3_1({126, 16384, 128, 8, 53248, 128256, 131072})},
                               {"llama-3.3-70b", llama_3_1({80, 8192, 64, 8, 28672, 128256, 131072})},
                               {"llama-7b", shape({32, 4096, 32, 32, 11008, 32000, 2048}, 1e4, false)}};
  return presets;
}

const Presets& qwen3_presets() {
  static const Presets presets{{"qwen3-0.6b", qwen3("qwen3", {28, 1024, 16, 8, 3072, 151936, 40960}, true)},
                               {"qwen3-4b", qwen3("qwen3", {36, 2560, 32, 8, 9728, 151936, 40960}, true)},
                               {"qwen3-8b", qwen3("qwen3", {36, 4096, 32, 8, 12288, 151936, 40960}, false)},
                               {"qwen3-14b", qwen3("qwen3", {40, 5120, 40, 8, 17408, 151936, 40960}, false)},
                               {"qwen3-32b", qwen3("qwen3", {64, 5120, 64, 8, 25600, 151936, 40960}, false)}};
  return presets;
}

const Presets& qwen3_moe_presets() {
  static const Presets presets{{"qwen3-30b-a3b", qwen3_moe({48, 2048, 32, 4, 6144, 151936, 32768}, 768)},
                               {"qwen3-235b-a22b", qwen3_moe({94, 4096, 64, 4, 12288, 151936, 40960}, 1536)}};
  return presets;
}

}  // namespace

const std::vector<Family>& llama_families() {
  static const std::vector<Family> families{
      {ModelConfig{}, llama_presets()},
      {named("mistral", ModelConfig{}),
       Presets{{"mistral-7b", named("mistral", shape({32, 4096, 32, 8, 14336, 32768, 32768}, 1e6, false))}}},
      {named("mixtral", ModelConfig{}), Presets{{"mixtral-8x7b", mixtral_8x7b()}}},
      {named("phi3", ModelConfig{}), Presets{}},
      {gpt_oss(), Presets{{"gpt-oss-20b", gpt_oss(24, 32)}, {"gpt-oss-120b", gpt_oss(36, 128)}}},
      {llama4(), Presets{{"llama-4-scout", llama4_scout()}, {"llama-4-maverick", llama4_maverick()}}},
      {named("ministral", ModelConfig{}), Presets{}},
      {named("internlm3", ModelConfig{}), Presets{}},
      {named("iquestcoder", ModelConfig{}), Presets{}},
      {cwm(), Presets{}},
      {eurobert(), Presets{}},
      {helium(), Presets{}},
      {qwen2_moe(), Presets{}},
      {hunyuan("hunyuan_v1_dense"), Presets{}},
      {hunyuan("hunyuan_v1_moe"), Presets{}},
      {ministral3(), Presets{}},
      {seed_oss(), Presets{}},
      {ernie4_5(), Presets{}},
      {ernie4_5_moe(), Presets{}},
      {qwen2(), qwen2_presets()},
      {named("qwen3", qwen3()), qwen3_presets()},
      {qwen3_5("qwen3_5"), Presets{}},
      {qwen3_5_with_experts("qwen3_5_moe"), Presets{}},
      {qwen3_5_with_experts("qwen3_next"), Presets{{"qwen3-next-80b-a3b", qwen3_next_80b_a3b()}}},
      {named("mellum", qwen3()), {}},
      {named("qwen3_moe", qwen3()), qwen3_moe_presets()},
  };
  return families;
}

}  // namespace weft
