// The variants' defaults. Sources: Groeneveld et al., "OLMo", 2024; OLMo 2 and 3, 2025; Muennighoff et al., "OLMoE",
// 2024; Shi et al., "FlexOlmo", 2025; Gemma and Gemma 2, 2024; Gemma 3, 2025; Gemma 4, 2026; DeepSeek-AI,
// "DeepSeek-V2" and "V3", 2024; Cohere, "Command A", 2025; LG AI Research, "EXAONE 4.0", 2025; GLM-4.5 Team, 2025;
// MiniMax-M2, 2025; IBM, "Granite 3.0", 2024; Hugging Face, "SmolLM3", 2025; Arcee AI, "AFM-4.5B", 2025; SK Telecom,
// "A.X K1", 2026; Aleph Alpha, "Kolibri", 2026; OpenBMB, "MiniCPM3-4B", 2024; Swiss AI Initiative, "Apertus", 2025;
// Karpathy, "nanochat", 2025.
#include "weft/models/variants.h"

#include <utility>

namespace weft {
namespace {

ModelConfig named(const char* family, ModelConfig c = {}) {
  c.family = family;
  return c;
}

ModelConfig olmo() {
  ModelConfig c = named("olmo");
  c.norm = NormKind::layer, c.norm_weight = false;
  return c;
}

ModelConfig olmo2(const char* family) {
  ModelConfig c = named(family);
  c.block = BlockKind::post, c.qk_norm_across = true;
  return c;
}

ModelConfig olmoe() {
  ModelConfig c = named("olmoe");
  c.qk_norm_across = true, c.norm_topk = false;
  return c;
}

ModelConfig flex_olmo() {
  ModelConfig c = olmo2("flex_olmo");
  c.norm_eps = 1e-6f, c.norm_topk = false;
  return c;
}

ModelConfig gemma(const char* family, BlockKind block) {
  ModelConfig c = named(family);
  c.block = block, c.norm_offset = true, c.norm_eps = 1e-6f;
  c.activation = Activation::gelu_tanh;
  c.tie_embeddings = true, c.embedding_scale = 0;
  return c;
}

// Trinity: gated attention, of which local layers alone turn.
ModelConfig afmoe() {
  ModelConfig c = named("afmoe");
  c.block = BlockKind::both, c.qk_norm = c.attention_gate = true, c.embedding_scale = 0, c.head_dim = 128;
  c.window = 2048, c.global_every = c.unrotated_every = 4;
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

// MiMo-V2-Flash: sinks in local layers, narrower values, experts chosen by a sigmoid.
ModelConfig mimo_v2_flash() {
  ModelConfig c = named("mimo_v2_flash");
  c.attention_sinks = true, c.global_sinks = false;
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

// Kolibri: experts chosen by logits with biases, and weighed by a sigmoid.
ModelConfig kolibri1() {
  ModelConfig c = named("kolibri1");
  c.block = BlockKind::both, c.qk_norm = true, c.norm_eps = 1e-6f, c.head_dim = 128;
  c.window = 513, c.global_every = c.unrotated_every = 5;
  c.router = RouterGate::sigmoid, c.router_bias = c.router_ranks_logits = true, c.norm_topk = false;
  return c;
}

ModelConfig gemma3() {
  ModelConfig c = gemma("gemma3", BlockKind::both);
  c.qk_norm = true;
  return c;
}

ModelConfig gemma4() {
  ModelConfig c = gemma("gemma4", BlockKind::both);
  c.norm_offset = false, c.qk_norm = c.value_norm = c.layer_scale = true, c.attention_scale = 1;
  c.rope_theta = 1e6, c.local_rope_theta = 1e4;
  c.rope_scaling = {.kind = RopeScaling::Kind::proportional, .turned_share = 0.25};
  return c;
}

// Of the large published ones.
ModelConfig gemma4_preset(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads, int64_t kv_heads,
                          int64_t global_kv_heads) {
  ModelConfig c = gemma4();
  c.layers = layers, c.hidden = hidden, c.ffn = ffn, c.heads = heads, c.kv_heads = kv_heads, c.head_dim = 256;
  c.window = 1024, c.global_every = 6, c.global_head_dim = 512, c.global_kv_heads = global_kv_heads;
  c.global_values_are_keys = true;
  c.vocab = 262144, c.context = 262144, c.logit_softcap = 30;
  return c;
}

ModelConfig gemma4_small(int64_t layers, int64_t hidden, int64_t ffn, int64_t kv_heads, int64_t every,
                         int64_t shared_kv_layers, int64_t shared_kv_ffn) {
  ModelConfig c = gemma4_preset(layers, hidden, ffn, 8, kv_heads, 0);
  c.window = 512, c.global_every = every, c.context = 131072, c.global_values_are_keys = false;
  c.shared_kv_layers = shared_kv_layers, c.shared_kv_ffn = shared_kv_ffn, c.layer_inputs = 256;
  return c;
}

ModelConfig gemma4_26b_a4b() {
  ModelConfig c = gemma4_preset(30, 2816, 2112, 16, 8, 2);
  c.experts = 128, c.experts_per_token = 8, c.expert_ffn = 704, c.experts_beside_dense = true;
  return c;
}

// No weight but those of products; queries and keys are normalised.
ModelConfig nanochat() {
  ModelConfig c = named("nanochat");
  c.norm_weight = c.qk_norm_weight = false, c.qk_norm = c.embedding_norm = true, c.norm_eps = 1e-6f;
  c.activation = Activation::relu_squared, c.is_gated = false;
  c.logit_softcap = 15;
  return c;
}

// As wide as 64 times its depth.
ModelConfig nanochat_of_depth(int64_t layers) {
  ModelConfig c = nanochat();
  c.layers = layers, c.hidden = 64 * layers, c.ffn = 4 * c.hidden, c.head_dim = 128, c.heads = c.hidden / c.head_dim;
  c.vocab = 65536, c.context = 2048;
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

// A.X K1: DeepSeek-V3, and a norm behind its experts.
ModelConfig axk1() {
  ModelConfig c = named("axk1", deepseek_v3());
  c.expert_post_norm = true;
  return c;
}

ModelConfig glm_moe_dsa() {
  ModelConfig c = deepseek_v3();
  c.family = "glm_moe_dsa", c.norm_eps = 1e-5f;
  return c;
}

// DeepSeek V3's shape: experts in all layers but three.
ModelConfig with_shape_of_v3(ModelConfig c, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  c.layers = layers, c.hidden = hidden, c.heads = c.kv_heads = heads, c.ffn = ffn;
  c.kv_rank = 512, c.rotary_dim = 64;
  c.experts = 256, c.experts_per_token = 8, c.shared_experts = 1, c.expert_ffn = 2048, c.first_dense_layers = 3;
  c.routed_scale = 2.5f;
  return c;
}

ModelConfig deepseek_671b(ModelConfig c) {
  c = with_shape_of_v3(std::move(c), 61, 7168, 128, 18432);
  c.vocab = 129280, c.context = 163840;
  c.query_rank = 1536, c.head_dim = 192, c.value_dim = 128;
  c.expert_groups = 8, c.groups_per_token = 4;
  c.rope_scaling = {
      .kind = RopeScaling::Kind::yarn, .factor = 40, .original_context = 4096, .mscale = 1, .mscale_all = 1};
  return c;
}
ModelConfig deepseek_v32_671b() {
  ModelConfig c = deepseek_671b(named("deepseek_v32", deepseek_v3()));
  c.index_heads = 64;
  return c;
}

ModelConfig glm_5() {
  ModelConfig c = with_shape_of_v3(glm_moe_dsa(), 78, 6144, 64, 12288);
  c.index_heads = 32;
  c.vocab = 154880, c.context = 202752, c.rope_theta = 1e6;
  c.query_rank = 2048, c.head_dim = 256, c.value_dim = 256;
  return c;
}

ModelConfig hy_v4() {
  ModelConfig c = deepseek_v3();
  c.family = "hy_v4", c.norm_eps = c.index_norm_eps = 1e-5f;
  c.attention_gate = c.attention_sinks = c.clips_experts = true;
  c.residual_streams = 4;
  return c;
}
ModelConfig hy4_preview() {
  ModelConfig c = hy_v4();
  c.layers = 34, c.hidden = 2816, c.heads = c.kv_heads = 32, c.ffn = 6912, c.vocab = 120832, c.context = 262144;
  c.kv_rank = 512, c.query_rank = 1536, c.rotary_dim = 64, c.head_dim = 256, c.value_dim = 256;
  c.experts = 256, c.experts_per_token = 8, c.shared_experts = 1, c.expert_ffn = 768, c.first_dense_layers = 1;
  c.routed_scale = 2.827f;
  c.index_heads = 16;
  for (int64_t i = 0; i < c.layers; ++i)
    if (i == 0 || (i - 1) % 4 == 0) c.index_layers.push_back(i);
  return c;
}

ModelConfig cohere(const char* family) {
  ModelConfig c = named(family);
  c.block = BlockKind::parallel_shared;
  c.norm = NormKind::layer;
  c.tie_embeddings = true, c.logit_scale = 0.0625f;
  return c;
}

ModelConfig exaone4() {
  ModelConfig c = named("exaone4");
  c.block = BlockKind::post, c.qk_norm = true;
  return c;
}

ModelConfig exaone_moe() {
  ModelConfig c = named("exaone_moe");
  c.qk_norm = true;
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

ModelConfig glm(const char* family, BlockKind block) {
  ModelConfig c = named(family);
  c.block = block, c.qkv_bias = true;
  return c;
}

ModelConfig glm4_moe() {
  ModelConfig c = named("glm4_moe");
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

ModelConfig glm_4_5_air() {
  ModelConfig c = glm4_moe();
  c.layers = 46, c.hidden = 4096, c.heads = 96, c.kv_heads = 8, c.ffn = 10944, c.vocab = 151552, c.context = 131072;
  c.head_dim = 128, c.rotary_dim = 64, c.rope_theta = 1e6, c.qkv_bias = true;
  c.experts = 128, c.experts_per_token = 8, c.expert_ffn = 1408, c.shared_experts = 1, c.first_dense_layers = 1;
  return c;
}

ModelConfig dots1() {
  ModelConfig c = deepseek_v3();
  c.family = "dots1", c.qk_norm = true;
  return c;
}

ModelConfig solar_open() {
  ModelConfig c = deepseek_v3();
  c.family = "solar_open", c.norm_eps = 1e-5f, c.rope_theta = 1e6;
  return c;
}

ModelConfig glm4_moe_lite() {
  ModelConfig c = deepseek_v3();
  c.family = "glm4_moe_lite", c.norm_eps = 1e-5f;
  return c;
}

// Hy3: experts as in K-EXAONE, attention of all layers alike.
ModelConfig hy_v3() {
  ModelConfig c = exaone_moe();
  c.family = "hy_v3", c.rope_theta = 11158840;
  return c;
}

// DeepSeek-V3's latent attention, and no experts.
ModelConfig youtu() {
  ModelConfig c = deepseek("youtu");
  c.tie_embeddings = true;
  return c;
}

// Apertus: an activation with numbers that each layer learns, norms of heads.
ModelConfig apertus() {
  ModelConfig c = named("apertus");
  c.qk_norm = true, c.rope_theta = 1.2e7;
  c.activation = Activation::identity, c.is_gated = false, c.is_xielu = true;
  return c;
}

ModelConfig apertus_preset(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  ModelConfig c = apertus();
  c.layers = layers, c.hidden = hidden, c.heads = heads, c.kv_heads = 8, c.ffn = ffn;
  c.vocab = 131072, c.context = 65536;
  c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8, .original_context = 8192};
  return c;
}

// DeepSeek-V2's latent attention in a dense model, whose files tell a factor at each end and at each sum.
ModelConfig minicpm3() {
  ModelConfig c = named("minicpm3");
  c.tie_embeddings = true;
  return c;
}

ModelConfig sarvam_moe() {
  ModelConfig c = dots1();
  c.family = "sarvam_moe", c.rope_theta = 8e6;
  return c;
}

ModelConfig hyperclovax() {
  ModelConfig c = named("hyperclovax");
  c.block = BlockKind::both, c.norm_eps = 1e-6f;
  return c;
}

// Granite with a window and sinks.
ModelConfig granite_swa(const char* family) {
  ModelConfig c = named(family);
  c.attention_sinks = true;
  return c;
}

ModelConfig minimax_m2() {
  ModelConfig c = named("minimax_m2");
  c.qk_norm_across = true, c.norm_eps = 1e-6f;
  c.router = RouterGate::sigmoid, c.router_bias = true;
  return c;
}

ModelConfig arcee() {
  ModelConfig c = named("arcee");
  c.activation = Activation::relu_squared, c.is_gated = false;
  return c;
}

ModelConfig smollm3() {
  ModelConfig c = named("smollm3");
  c.tie_embeddings = true, c.norm_eps = 1e-6f, c.unrotated_every = 4;
  return c;
}

}  // namespace

const std::vector<Family>& variant_families() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    for (const ModelConfig& defaults : {olmo(),
                                        olmo2("olmo2"),
                                        olmo2("olmo3"),
                                        olmoe(),
                                        flex_olmo(),
                                        gemma("gemma", BlockKind::pre),
                                        gemma("gemma2", BlockKind::both),
                                        gemma("vaultgemma", BlockKind::pre),
                                        gemma3(),
                                        deepseek("deepseek_v2"),
                                        deepseek("mistral4"),
                                        cohere("cohere"),
                                        cohere("cohere2"),
                                        cohere("cohere2_moe"),
                                        exaone4(),
                                        exaone_moe(),
                                        glm("glm", BlockKind::pre),
                                        glm("glm4", BlockKind::both),
                                        glm4_moe_lite(),
                                        hy_v3(),
                                        youtu(),
                                        minicpm3(),
                                        sarvam_moe(),
                                        named("sarvam_mla", deepseek_v3()),
                                        minimax_m2(),
                                        named("granite"),
                                        named("granitemoe"),
                                        named("granitemoeshared"),
                                        granite_swa("granite_swa"),
                                        granite_swa("granitemoe_swa"),
                                        hyperclovax(),
                                        arcee(),
                                        afmoe(),
                                        axk1(),
                                        kolibri1(),
                                        mimo_v2_flash(),
                                        dots1(),
                                        solar_open(),
                                        smollm3()})
      all.push_back({defaults, {}});
    all.push_back({deepseek_v3(), {{"deepseek-v3", deepseek_671b(deepseek_v3())}}});
    all.push_back({glm4_moe(), {{"glm-4.5-air", glm_4_5_air()}}});
    all.push_back({named("deepseek_v32", deepseek_v3()), {{"deepseek-v3.2", deepseek_v32_671b()}}});
    all.push_back({glm_moe_dsa(), {{"glm-5", glm_5()}}});
    all.push_back({apertus(),
                   {{"apertus-8b", apertus_preset(32, 4096, 32, 21504)},
                    {"apertus-70b", apertus_preset(80, 8192, 64, 43008)}}});
    all.push_back({nanochat(), {{"nanochat-d20", nanochat_of_depth(20)}, {"nanochat-d32", nanochat_of_depth(32)}}});
    all.push_back({hy_v4(), {{"hy4-preview", hy4_preview()}}});
    all.push_back({gemma4(),
                   {{"gemma-4-31b", gemma4_preset(60, 5376, 21504, 32, 16, 4)},
                    {"gemma-4-26b-a4b", gemma4_26b_a4b()},
                    {"gemma-4-e2b", gemma4_small(35, 1536, 6144, 1, 5, 20, 12288)},
                    {"gemma-4-e4b", gemma4_small(42, 2560, 10240, 2, 6, 18, 0)}}});
    return all;
  }();
  return families;
}

}  // namespace weft
