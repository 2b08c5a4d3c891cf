// The hybrids' defaults and shapes. Sources: IBM, "Granite 4.0", 2025; NVIDIA, "Nemotron-H", 2025, "Nemotron Nano 2",
// 2025, "Nemotron 3 Nano", 2025, and the config.json of Nemotron 3 Super, 2026; Liquid AI, "LFM2 Technical Report",
// 2025, and the config.json of LFM3, 2026; IBM, "Bamba", 2024; Zuo et al., "Falcon-H1", 2025; Ai2, "OLMo Hybrid",
// 2026; Kimi Team, "Kimi Linear", 2025.
#include "weft/models/hybrids.h"

#include <string_view>

namespace weft {
namespace {

// Granite 4: layers of Mamba-2 between those that attend, which know no positions.
ModelConfig granite() {
  ModelConfig c;
  c.family = "granitemoehybrid";
  c.attention_every = 10, c.unrotated_every = 1;
  c.state_rule = StateKind::selective, c.state_key_heads = 1, c.state_conv_bias = true;
  return c;
}

// Nemotron-H: layers of one part each.
ModelConfig nemotron_h() {
  ModelConfig c;
  c.family = "nemotron_h";
  c.block = BlockKind::single, c.attention_every = 3, c.unrotated_every = 1;
  c.state_rule = StateKind::selective, c.state_conv_bias = true;
  c.activation = Activation::relu_squared, c.is_gated = false;
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

// pattern: M for Mamba-2, * for attention, - and E for a feed-forward part, as NVIDIA writes it.
ModelConfig nemotron_h(std::string_view pattern) {
  ModelConfig c = nemotron_h();
  c.layers = int64_t(pattern.size()), c.attention_every = 1;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*') c.attention_layers.push_back(int64_t(i));
    if (pattern[i] == '-' || pattern[i] == 'E') c.mlp_layers.push_back(int64_t(i));
  }
  c.head_dim = 128, c.vocab = 131072;
  c.state_key_heads = 8, c.state_key_dim = 128;
  return c;
}

ModelConfig nemotron_nano_9b_v2() {
  ModelConfig c = nemotron_h("M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-");
  c.hidden = 4480, c.heads = 40, c.kv_heads = 8, c.ffn = 15680, c.context = 131072;
  c.state_heads = 128, c.state_value_dim = 80;
  return c;
}

ModelConfig nemotron_3_nano() {
  ModelConfig c = nemotron_h("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME");
  c.hidden = 2688, c.heads = 32, c.kv_heads = 2, c.ffn = 1856, c.context = 262144;
  c.state_heads = 64, c.state_value_dim = 64;
  c.experts = 128, c.experts_per_token = 6, c.expert_ffn = 1856, c.shared_experts = 2, c.routed_scale = 2.5f;
  return c;
}

// Of its part behind the last layer, which predicts a token further on, nothing is here: that has both kinds of
// layers.
ModelConfig nemotron_3_super() {
  ModelConfig c =
      nemotron_h("MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME");
  c.hidden = 4096, c.heads = 32, c.kv_heads = 2, c.ffn = 2688, c.context = 262144;
  c.state_heads = 128, c.state_value_dim = 64;
  c.experts = 512, c.experts_per_token = 22, c.expert_ffn = 2688, c.expert_latent_dim = 1024, c.shared_experts = 2;
  c.routed_scale = 5;
  return c;
}

// Bamba: layers of Mamba-2, and a few that attend.
ModelConfig bamba() {
  ModelConfig c;
  c.family = "bamba";
  c.attention_every = 10, c.state_rule = StateKind::selective, c.state_key_heads = 1, c.state_conv_bias = true;
  return c;
}

// Falcon-H1: every layer attends and has states of Mamba-2, side by side.
ModelConfig falcon_h1() {
  ModelConfig c;
  c.family = "falcon_h1";
  c.state_beside_attention = true, c.state_rule = StateKind::selective, c.state_norm = StateNorm::none;
  c.state_key_heads = 1, c.state_conv_bias = true;
  return c;
}

ModelConfig falcon_h1_0_5b() {
  ModelConfig c = falcon_h1();
  c.layers = 36, c.hidden = 1024, c.heads = 8, c.kv_heads = 2, c.head_dim = 64, c.ffn = 2048, c.vocab = 32784;
  c.context = 16384, c.rope_theta = 1e11;
  c.state_heads = 24, c.state_key_dim = 128, c.state_value_dim = 64;
  // Of the input of Mamba-2, and of keys.
  constexpr double kInputs = 1.25, kKeys = 0.39062499999999994;
  for (const double x : {0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738})
    c.state_input_scales.push_back(kInputs * x);
  c.embedding_scale = 5.656854249492381f, c.logit_scale = 0.0390625f;
  c.attention_scale = float(kKeys / 8), c.attention_out_scale = 0.9375f;
  c.state_out_scale = 0.23570226039551587f, c.mlp_gate_scale = 0.8838834764831844f, c.mlp_out_scale = 0.5859375f;
  return c;
}

// OLMo Hybrid: three of four layers are of the gated delta rule, with norms before their parts; the others attend and
// know no positions.
ModelConfig olmo_hybrid() {
  ModelConfig c;
  c.family = "olmo_hybrid";
  c.block = BlockKind::post, c.state_pre_norm = true, c.qk_norm_across = true, c.norm_eps = 1e-6f;
  c.attention_every = 4, c.unrotated_every = 1;
  c.state_beta_scale = 2, c.state_norm_eps = 1e-5f;
  return c;
}

// LFM2: gated convolutions, and every few layers one that attends.
ModelConfig lfm2(const char* family) {
  ModelConfig c;
  c.family = family;
  c.qk_norm = c.tie_embeddings = true, c.rope_theta = 1e6;
  c.attention_every = 3, c.state_rule = StateKind::convolution, c.state_conv = 3;
  return c;
}
ModelConfig lfm2_moe() {
  ModelConfig c = lfm2("lfm2_moe");
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

ModelConfig of_lfm2_shape(ModelConfig c, int64_t layers, int64_t ffn, std::vector<int64_t> attending) {
  c.layers = layers, c.hidden = 2048, c.heads = 32, c.kv_heads = 8, c.ffn = ffn, c.vocab = 65536, c.context = 128000;
  c.attention_every = 1, c.attention_layers = std::move(attending);
  return c;
}

ModelConfig lfm2_8b_a1b() {
  ModelConfig c = of_lfm2_shape(lfm2_moe(), 24, 7168, {2, 6, 10, 14, 18, 21});
  c.experts = 32, c.experts_per_token = 4, c.expert_ffn = 1792, c.first_dense_layers = 2;
  return c;
}

// LFM3: of the layers that attend some are local; heads are gated, and norms stand on both sides of all parts.
ModelConfig lfm3() {
  ModelConfig c = lfm2("lfm3");
  c.block = BlockKind::both, c.attention_gate = c.attention_gate_by_head = true, c.head_dim = 128, c.state_conv = 7;
  c.attention_every = 2, c.window = 256, c.global_every = 4, c.local_rope_theta = 1e4;
  c.rope_scaling = {.kind = RopeScaling::Kind::proportional, .turned_share = 0.5};
  return c;
}

// Kimi Linear: the delta rule with a rate to each row of a state, and latent attention that knows no positions.
ModelConfig kimi_linear() {
  ModelConfig c;
  c.family = "kimi_linear";
  c.attention_every = 4, c.unrotated_every = 1;
  c.state_rule = StateKind::kimi_delta;
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

ModelConfig kimi_linear_48b_a3b() {
  ModelConfig c = kimi_linear();
  c.layers = 27, c.hidden = 2304, c.heads = 32, c.ffn = 9216, c.vocab = 163840, c.context = 1048576;
  c.attention_every = 1, c.attention_layers = {3, 7, 11, 15, 19, 23, 26};
  c.kv_rank = 512, c.head_dim = 192, c.rotary_dim = 64, c.value_dim = 128;
  c.experts = 256, c.experts_per_token = 8, c.expert_ffn = 1024, c.shared_experts = 1, c.first_dense_layers = 1;
  c.routed_scale = 2.446f;
  return c;
}

}  // namespace

const std::vector<Family>& hybrid_families() {
  static const std::vector<Family> families{
      {granite(), {}},
      {bamba(), {}},
      {falcon_h1(), {{"falcon-h1-0.5b", falcon_h1_0_5b()}}},
      {olmo_hybrid(), {}},
      {nemotron_h(),
       {{"nemotron-nano-9b-v2", nemotron_nano_9b_v2()},
        {"nemotron-3-nano-30b-a3b", nemotron_3_nano()},
        {"nemotron-3-super-120b-a12b", nemotron_3_super()}}},
      {lfm2("lfm2"), {{"lfm2-1.2b", of_lfm2_shape(lfm2("lfm2"), 16, 8192, {2, 5, 8, 10, 12, 14})}}},
      {lfm2_moe(), {{"lfm2-8b-a1b", lfm2_8b_a1b()}}},
      {lfm3(), {}},
      {kimi_linear(), {{"kimi-linear-48b-a3b", kimi_linear_48b_a3b()}}}};
  return families;
}

}  // namespace weft
