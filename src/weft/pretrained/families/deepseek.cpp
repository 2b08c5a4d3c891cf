// DeepSeek-V2, V3 and V3.2 as Hugging Face saves them: latent attention, shared experts, groups of experts, keys that
// an index selects; and A.X K1, GLM-4.7-Flash, GLM-5, Hy4, Sarvam 105B and Youtu-LLM, which are built so too.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_deepseek {
namespace {

// null: queries are made at once. absent: what a file without the key means.
void query_rank_field(HfFields& f, ModelConfig& c, int64_t absent) {
  constexpr const char* kKey = "q_lora_rank";
  if (!f.is_reading() && c.query_rank == 0)
    f.to()[kKey] = nullptr;
  else if (f.is_reading() && f.from().raw().contains(kKey) && !f.has(kKey))
    c.query_rank = 0;
  else
    f.size(kKey, c.query_rank, absent);
}

// What a file without a key means, and how angles are told.
struct AbsentKeys {
  int64_t query_rank = 1536;
  double norm_eps = 1e-6;
  bool is_tied = false;
  AbsentExperts experts = {};
  void (*rope_fields)(HfFields&, ModelConfig&) = [](HfFields& f, ModelConfig& c) { weft::rope_fields(f, c, 10000); };
};
void dense_fields(HfFields& f, ModelConfig& c, const AbsentKeys& absent) {
  common_shape_fields(f, c);
  latent_attention_fields(f, c, absent.query_rank);
  f.only("rope_interleave", true);
  f.number("rms_norm_eps", c.norm_eps, absent.norm_eps);
  f.flag("tie_word_embeddings", c.tie_embeddings, absent.is_tied);
  activation_field(f, "hidden_act", c.activation, "silu");
  absent.rope_fields(f, c);
}
void common_fields(HfFields& f, ModelConfig& c, const AbsentKeys& absent = {}) {
  dense_fields(f, c, absent);
  deepseek_expert_fields(f, c, absent.experts);
}

void v2_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.flag("norm_topk_prob", c.norm_topk, false);
  f.only("scoring_func", "softmax");
  // Without groups all experts may be chosen, whatever the other keys say.
  bool has_groups = c.expert_groups > 1;
  f.choice<bool>("topk_method", has_groups, {{"greedy", false}, {"group_limited_greedy", true}}, "greedy");
  if (!has_groups) c.expert_groups = c.groups_per_token = 1;
}

void v3_fields(HfFields& f, ModelConfig& c, const AbsentKeys& absent) {
  common_fields(f, c, absent);
  f.flag("norm_topk_prob", c.norm_topk, true);
  f.only("scoring_func", "sigmoid");
  f.only("topk_method", "noaux_tc");
}
void v3_fields(HfFields& f, ModelConfig& c) { v3_fields(f, c, {}); }

void sarvam_fields(HfFields& f, ModelConfig& c) {
  v3_fields(f, c, {.query_rank = 0, .experts = {.shared = 1, .first_dense = 1, .scale = 2.5}});
}

void youtu_fields(HfFields& f, ModelConfig& c) {
  dense_fields(f, c, {.is_tied = true});
  f.only("mlp_bias", false);
}

void mistral4_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, {.query_rank = 1024, .rope_fields = [](HfFields& g, ModelConfig& d) {
                         scaled_query_rope_fields(g, d, 10000);
                       }});
  f.flag("norm_topk_prob", c.norm_topk, true);
  if (c.expert_groups > 1) f.refuse("n_group", "groups of experts are not ranked so here");
}

void glm_lite_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, {.query_rank = 768, .norm_eps = 1e-5});
  f.flag("norm_topk_prob", c.norm_topk, true);
  sparse_layers_fields(f, c, 1);
}

// Published routers have no biases, as topk_method then says.
void axk1_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kBiased = "noaux_tc";
  common_fields(f, c, {.experts = {.shared = 1, .first_dense = 1, .scale = 2.5, .groups = 8, .groups_per_token = 4}});
  if (c.query_rank == 0) f.refuse("q_lora_rank", "queries of models of this kind are made from latents");
  f.flag("norm_topk_prob", c.norm_topk, true);
  f.only("scoring_func", "sigmoid");
  sparse_layers_fields(f, c, 1);
  if (f.is_reading())
    c.router_bias = f.from().string_or("topk_method", kBiased) == kBiased;
  else
    f.to()["topk_method"] = c.router_bias ? kBiased : "none";
}

// index_heads: of a file without the key.
void index_fields(HfFields& f, ModelConfig& c, int64_t index_heads) {
  f.size("index_n_heads", c.index_heads, index_heads);
  if (c.index_heads == 0) f.refuse("index_n_heads", "models of this kind select keys");
  if (c.query_rank == 0) f.refuse("q_lora_rank", "keys are selected by the latents of queries");
  f.size("index_head_dim", c.index_head_dim, 128);
  f.size("index_topk", c.index_topk, 2048);
}

void v32_fields(HfFields& f, ModelConfig& c) {
  v3_fields(f, c);
  sparse_layers_fields(f, c, 3);
  index_fields(f, c, 64);
  if (!c.index_layers.empty()) f.refuse("index_layers", "all layers of models of this kind have an index");
}

// Layers with an index of their own ("full") and those that see what the last of them selected; in files without
// names every n-th behind the first ones.
void index_layers_fields(HfFields& f, ModelConfig& c, int64_t absent_every) {
  constexpr const char *kTypes = "indexer_types", *kPattern = "index_topk_pattern";
  if (!f.is_reading()) {
    nlohmann::json& types = f.to()[kTypes] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.has_index(i) ? "full" : "shared");
    return;
  }
  int64_t every = 1, offset = 2;
  f.size("index_topk_freq", every, absent_every), f.size("index_skip_topk_offset", offset, 2);
  if (f.has(kPattern)) f.refuse(kPattern, "write indexer_types, a name to each layer");
  std::vector<bool> have;
  for (int64_t i = 0; i < c.layers; ++i)
    have.push_back(std::max<int64_t>(i - offset + 1, 0) % std::max<int64_t>(every, 1) == 0);
  if (f.has(kTypes)) have = layers_that_are(f, c, kTypes, "full", "shared");
  for (int64_t i = 0; i < c.layers; ++i)
    if (have[size_t(i)]) c.index_layers.push_back(i);
  if (c.index_layers.empty() || c.index_layers[0] != 0)
    f.refuse(kTypes, "the first layer has no other before it: it must be full");
}

void glm_dsa_fields(HfFields& f, ModelConfig& c) {
  v3_fields(f, c, {.query_rank = 2048, .norm_eps = 1e-5});
  sparse_layers_fields(f, c, 3);
  index_fields(f, c, 32);
  f.only("indexer_rope_interleave", true);
  index_layers_fields(f, c, 1);
}

// Of experts that are chosen; 0 and less: there is none.
void swiglu_limit_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kKey = "swiglu_limit";
  double limit = c.clips_experts ? double(kClippedLimit) : 0;
  f.number(kKey, limit, double(kClippedLimit));
  if (limit > 0 && limit != double(kClippedLimit)) f.refuse(kKey, "10 and 0 are supported");
  c.clips_experts = limit > 0;
}

void hy4_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  latent_attention_fields(f, c, 1536);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  rope_fields(f, c, 10000);
  deepseek_expert_fields(f, c, {.shared = 1, .first_dense = 1, .scale = 2.827});
  f.flag("norm_topk_prob", c.norm_topk, true);
  sparse_layers_fields(f, c, 1);
  swiglu_limit_field(f, c);
  index_fields(f, c, 16);
  index_layers_fields(f, c, 4);
  if (f.is_reading()) c.index_norm_eps = c.norm_eps;
  f.size("hc_mult", c.residual_streams, 4);
  if (!c.has_streams()) f.refuse("hc_mult", "models of this kind have several residual streams");
  f.number("hc_magnitude", c.stream_magnitude, 2.0);
  f.number("hc_eps", c.stream_eps, 1e-6);
}

// layout: of queries and keys of an index.
constexpr std::array<NameRow, 4> index_names(const Layout& layout) {
  return {{{"layers.#.attention.index.query", "model.layers.#.self_attn.indexer.wq_b", layout},
           {"layers.#.attention.index.key", "model.layers.#.self_attn.indexer.wk", layout},
           {"layers.#.attention.index.key_norm", "model.layers.#.self_attn.indexer.k_norm", layout},
           {"layers.#.attention.index.weights", "model.layers.#.self_attn.indexer.weights_proj"}}};
}
constexpr NameRow kAttention[] = {
    {"layers.#.attention.query_down", "model.layers.#.self_attn.q_a_proj"},
    {"layers.#.attention.query_norm", "model.layers.#.self_attn.q_a_layernorm"},
    {"layers.#.attention.latent", "model.layers.#.self_attn.kv_a_proj_with_mqa", {.part = Part::latent}},
    {"layers.#.attention.key_rotary", "model.layers.#.self_attn.kv_a_proj_with_mqa", {.part = Part::key_rotary}},
    {"layers.#.attention.latent_norm", "model.layers.#.self_attn.kv_a_layernorm"},
    {"layers.#.attention.key", "model.layers.#.self_attn.kv_b_proj", {.part = Part::latent_key}},
    {"layers.#.attention.value", "model.layers.#.self_attn.kv_b_proj", {.part = Part::latent_value}},
    {"layers.#.attention.output", "model.layers.#.self_attn.o_proj"},
};
constexpr NameRow kQuery[] = {
    {"layers.#.attention.query", "model.layers.#.self_attn.q_b_proj", {.part = Part::latent_query}}};
constexpr NameRow kDirectQuery[] = {
    {"layers.#.attention.query", "model.layers.#.self_attn.q_proj", {.part = Part::latent_query}}};
// Of Hy4, whose turned elements lie in halves.
constexpr NameRow kHy4[] = {
    {"layers.#.attention.query",
     "model.layers.#.self_attn.q_b_proj",
     {.part = Part::latent_query, .has_halves = true}},
    {"layers.#.attention.key_rotary",
     "model.layers.#.self_attn.kv_a_proj_with_mqa",
     {.part = Part::key_rotary, .has_halves = true}},
    {"layers.#.attention.sinks", "model.layers.#.self_attn.learnable_sink_param"},
    {"layers.#.attention.gate", "model.layers.#.self_attn.linear_gate"},
    {"layers.#.attention_streams.weight", "model.layers.#.hc_pre.hc_attn_layer.hc_fn"},
    {"layers.#.attention_streams.base", "model.layers.#.hc_pre.hc_attn_layer.hc_base"},
    {"layers.#.attention_streams.scale", "model.layers.#.hc_pre.hc_attn_layer.hc_scale"},
    {"layers.#.mlp_streams.weight", "model.layers.#.hc_pre.hc_mlp_layer.hc_fn"},
    {"layers.#.mlp_streams.base", "model.layers.#.hc_pre.hc_mlp_layer.hc_base"},
    {"layers.#.mlp_streams.scale", "model.layers.#.hc_pre.hc_mlp_layer.hc_scale"},
    {"final_streams.weight", "model.hc_pre.hc_head.hc_head_fn"},
    {"final_streams.base", "model.hc_pre.hc_head.hc_head_base"},
    {"final_streams.scale", "model.hc_pre.hc_head.hc_head_scale"},
    {"layers.#.mlp.gate", "model.layers.#.mlp.linear_gate"},
    {"layers.#.moe.shared.gate", "model.layers.#.mlp.shared_experts.linear_gate"},
};

constexpr NameRow kRouterBias[] = {{"layers.#.moe.router.bias", "model.layers.#.mlp.gate.e_score_correction_bias"}};

constexpr NameRow kMtp[] = {{"layers.#.mtp.embedding_norm", "model.layers.#.enorm"},
                            {"layers.#.mtp.hidden_norm", "model.layers.#.hnorm"},
                            {"layers.#.mtp.projection", "model.layers.#.eh_proj"},
                            {"layers.#.mtp.norm", "model.layers.#.shared_head.norm"}};

// Of Mistral Small 4 and Hy4: all experts of a layer in two tensors.
constexpr NameRow kStacks[] = {
    {"layers.#.moe.experts.gate.weight", "model.layers.#.mlp.experts.gate_up_proj", {.part = Part::gate}},
    {"layers.#.moe.experts.up.weight", "model.layers.#.mlp.experts.gate_up_proj", {.part = Part::up}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.mlp.experts.down_proj"},
};

const std::vector<NameRow>& names(const ModelConfig& c) {
  const auto rows_with = [](int64_t query_rank) {
    return joined({outer_names(), pre_norm_names(), latent_attention_names({.query_rank = query_rank}),
                   std::span(kRouterBias), gated_names(), expert_names()});
  };
  static const std::vector<NameRow> rows = rows_with(1), direct = rows_with(0);
  return c.query_rank > 0 ? rows : direct;
}

constexpr NameRow kExpertNorm[] = {{"layers.#.moe.post_norm", "model.layers.#.post_mlp_layernorm"}};
const std::vector<NameRow>& axk1_names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kExpertNorm), names({.query_rank = 1})});
  return rows;
}

const std::vector<NameRow>& v32_names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({index_names({}), names({.query_rank = 1})});
  return rows;
}

const std::vector<NameRow>& glm_dsa_names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({index_names({.part = Part::index}), names({.query_rank = 1})});
  return rows;
}

const std::vector<NameRow>& hy4_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({std::span(kHy4), std::span(kStacks), index_names({.part = Part::index, .has_halves = true}),
              names({.query_rank = 1})});
  return rows;
}

const std::vector<NameRow>& mistral4_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kStacks), names({.query_rank = 1})}),
                                    direct = joined({std::span(kStacks), names({})});
  return c.query_rank > 0 ? rows : direct;
}

}  // namespace
}  // namespace hf_deepseek

std::span<const NameRow> deepseek_mtp_names() { return hf_deepseek::kMtp; }

void latent_attention_fields(HfFields& f, ModelConfig& c, int64_t absent_query_rank, int64_t absent_value_dim) {
  hf_deepseek::query_rank_field(f, c, absent_query_rank);
  int64_t rest = c.head_dim - c.rotary_dim;
  f.size("kv_lora_rank", c.kv_rank);
  if (c.kv_rank == 0) f.refuse("kv_lora_rank", "models of this kind have latent attention");
  f.size("qk_nope_head_dim", rest);
  f.size("qk_rope_head_dim", c.rotary_dim);
  absent_value_dim > 0 ? f.size("v_head_dim", c.value_dim, absent_value_dim) : f.size("v_head_dim", c.value_dim);
  c.head_dim = rest + c.rotary_dim;
  f.flag("attention_bias", c.qkv_bias, false);
  c.output_bias = c.qkv_bias;
}

const std::vector<NameRow>& latent_attention_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({hf_deepseek::kAttention, hf_deepseek::kQuery}),
                                    direct = joined({hf_deepseek::kAttention, hf_deepseek::kDirectQuery});
  return c.query_rank > 0 ? rows : direct;
}

void deepseek_expert_fields(HfFields& f, ModelConfig& c, const AbsentExperts& absent) {
  f.size(either(f, "n_routed_experts", "num_experts"), c.experts);
  if (!f.is_reading() && c.experts == 0 && c.mtp_layers > 0)
    f.refuse("n_routed_experts", "the part that predicts further on has experts in models of this kind");
  f.size(either(f, "n_shared_experts", "num_shared_experts"), c.shared_experts, absent.shared);
  f.size("num_experts_per_tok", c.experts_per_token);
  f.size("moe_intermediate_size", c.expert_ffn);
  int64_t dense = c.experts > 0 ? c.first_dense_layers : c.layers;
  f.size("first_k_dense_replace", dense, absent.first_dense);
  c.first_dense_layers = dense;
  f.number("routed_scaling_factor", c.routed_scale, absent.scale);
  f.size("n_group", c.expert_groups, absent.groups);
  f.size("topk_group", c.groups_per_token, absent.groups_per_token);
  f.only("moe_layer_freq", int64_t(1));
}

std::vector<HfFamily> hf_deepseek_families() {
  using namespace hf_deepseek;

  return {{.family = "deepseek_v2",
           .model_type = "deepseek_v2",
           .architecture = "DeepseekV2ForCausalLM",
           .fields = v2_fields,
           .names = names,
           .base = "model."},
          {.family = "deepseek_v3",
           .model_type = "deepseek_v3",
           .architecture = "DeepseekV3ForCausalLM",
           .fields = v3_fields,
           .names = names,
           .base = "model.",
           .mtp = kMtp},
          {.family = "deepseek_v3",
           .model_type = "kimi_k2",
           .architecture = "DeepseekV3ForCausalLM",
           .fields = v3_fields,
           .names = names,
           .base = "model."},
          {.family = "sarvam_mla",
           .model_type = "sarvam_mla",
           .architecture = "DeepseekV3ForCausalLM",
           .fields = sarvam_fields,
           .names = names,
           .base = "model."},
          {.family = "axk1",
           .model_type = "axk1",
           .architecture = "AXK1ForCausalLM",
           .fields = axk1_fields,
           .names = axk1_names,
           .base = "model.",
           // Of dense layers, which published files have too.
           .ignored = {"model.layers.#.post_mlp_layernorm.weight"},
           .leaves_layers_behind = true},
          {.family = "youtu",
           .model_type = "youtu",
           .architecture = "YoutuForCausalLM",
           .fields = youtu_fields,
           .names = names,
           .base = "model."},
          {.family = "deepseek_v32",
           .model_type = "deepseek_v32",
           .architecture = "DeepseekV32ForCausalLM",
           .fields = v32_fields,
           .names = v32_names,
           .base = "model.",
           .mtp = kMtp},
          {.family = "glm_moe_dsa",
           .model_type = "glm_moe_dsa",
           .architecture = "GlmMoeDsaForCausalLM",
           .fields = glm_dsa_fields,
           .names = glm_dsa_names,
           .base = "model.",
           .mtp = kMtp},
          {.family = "hy_v4",
           .model_type = "hy_v4",
           .architecture = "HYV4ForCausalLM",
           .fields = hy4_fields,
           .names = hy4_names,
           .base = "model.",
           .ignored = {"model.mtp_layers.*"}},
          {.family = "mistral4",
           .model_type = "mistral4",
           .architecture = "Mistral4ForCausalLM",
           .fields = mistral4_fields,
           .names = mistral4_names,
           .base = "model."},
          {.family = "glm4_moe_lite",
           .model_type = "glm4_moe_lite",
           .architecture = "Glm4MoeLiteForCausalLM",
           .fields = glm_lite_fields,
           .names = names,
           .base = "model.",
           .mtp = kMtp}};
}

}  // namespace weft
