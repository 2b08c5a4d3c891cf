// Llama as Hugging Face saves it, and the models whose configuration and tensors differ from it in a few names, but
// for Qwen's.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_llama {
namespace {

void llama_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c);
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
}

void mistral_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c);
  rope_fields(f, c, 10000);
  window_field(f, c, 4096);
}

void ministral_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.kv_heads = 8});
  rope_fields(f, c, 10000);
  window_field(f, c, 4096);
  layer_types_field(f, c);
}

// The library names biases anew.
void internlm3_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 2, .norm_eps = 1e-5});
  rope_fields(f, c, 10000);
  const char* const mlp_key = either(f, "mlp_bias", "bias");
  f.flag(either(f, "attention_bias", "qkv_bias"), c.qkv_bias, false);
  f.flag(mlp_key, c.mlp_bias, false);
  if (c.qkv_bias != c.mlp_bias) f.refuse(mlp_key, "all projections must have biases, or none");
  c.output_bias = c.qkv_bias;
}

void iquestcoder_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5});
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  f.only_null("clip_qkv");
  f.only("use_sliding_window", false);
}

void cwm_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5});
  rope_fields(f, c, 1e6);
  if (f.is_reading() && !f.has("rope_parameters") && !f.has("rope_scaling"))
    c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 16, .original_context = 8192};
  if (f.is_reading()) f.only("attention_bias", false);  // which the library does not know
  f.flag("mlp_bias", c.mlp_bias, false);
  first_of_four_global_fields(f, c, 8192);
}

void ministral3_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5});
  scaled_query_rope_fields(f, c, 1e6);
  window_field(f, c);
  RopeScaling& s = c.rope_scaling;
  // Its `mscale` scales no scores.
  if (f.is_reading() && s.mscale_all > 0)
    s.attention_factor = s.rotation_factor(c.context), s.mscale = s.mscale_all = 0;
}

void arcee_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.norm_eps = 1e-5, .activation = "relu2"});
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
}

void ernie_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 2, .norm_eps = 1e-5, .is_tied = true});
  rope_fields(f, c, 500000);
  f.flag("use_bias", c.qkv_bias, false);
  c.output_bias = c.mlp_bias = c.qkv_bias;
}

void ernie_moe_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kFirst = "moe_layer_start_index", *kLast = "moe_layer_end_index",
                       *kInterval = "moe_layer_interval";
  llama_shape_fields(f, c, {.kv_heads = 4, .norm_eps = 1e-5, .is_tied = true});
  rope_fields(f, c, 500000);
  f.flag("use_bias", c.qkv_bias, false);
  c.output_bias = c.mlp_bias = c.qkv_bias;
  f.size("moe_num_experts", c.experts, 64);
  f.size("moe_k", c.experts_per_token, 6);
  f.size("moe_intermediate_size", c.expert_ffn, 1536);
  f.size("moe_num_shared_experts", c.shared_experts, 2);
  balance_loss_field(f, c);
  const std::vector<int64_t>& named = c.expert_layers;
  int64_t first = named.empty() ? c.first_dense_layers : named.front(), interval = 1;
  int64_t last = named.empty() ? c.layers - 1 : named.back();
  if (named.size() > 1) interval = named[1] - named[0];
  f.size(kFirst, first, 1);
  f.size(kInterval, interval, 1);
  if (!f.is_reading()) {
    f.to()[kLast] = last;
    return;
  }
  if (interval < 1) f.refuse(kInterval, "it must be at least 1");
  if (f.has(kLast) && f.from().at(kLast).integer() != -1) last = f.from().at(kLast).integer();
  std::vector<bool> told;
  for (int64_t i = 0; i < c.layers; ++i) told.push_back((i + 1) % interval == 0 && i >= first && i <= last);
  set_expert_layers(c, told);
}

void mixtral_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  llama_shape_fields(f, c, {.norm_eps = 1e-5});
  rope_fields(f, c, 1e6);
  window_field(f, c);
  f.size("num_local_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  balance_loss_field(f, c);
}

void phi3_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  rope_fields(f, c, 10000, "partial_rotary_factor");
  if (c.rope_scaling.kind == RopeScaling::Kind::longrope &&
      (!f.is_reading() || f.has("original_max_position_embeddings")))
    f.size("original_max_position_embeddings", c.rope_scaling.original_context, 4096);
  window_field(f, c);
}

constexpr NameRow kMixtralExperts[] = {
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.gate"},
    {"layers.#.moe.experts.gate", "model.layers.#.block_sparse_moe.experts.@.w1"},
    {"layers.#.moe.experts.up", "model.layers.#.block_sparse_moe.experts.@.w3"},
    {"layers.#.moe.experts.down", "model.layers.#.block_sparse_moe.experts.@.w2"},
};
constexpr NameRow kPhi3Fused[] = {
    {"layers.#.attention.query", "model.layers.#.self_attn.qkv_proj", {.part = Part::query}},
    {"layers.#.attention.key", "model.layers.#.self_attn.qkv_proj", {.part = Part::key}},
    {"layers.#.attention.value", "model.layers.#.self_attn.qkv_proj", {.part = Part::value}},
    {"layers.#.attention.output", "model.layers.#.self_attn.o_proj"},
    {"layers.#.mlp.gate", "model.layers.#.mlp.gate_up_proj", {.part = Part::gate}},
    {"layers.#.mlp.up", "model.layers.#.mlp.gate_up_proj", {.part = Part::up}},
    {"layers.#.mlp.down", "model.layers.#.mlp.down_proj"},
};

const std::vector<NameRow>& mixtral_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), std::span(kMixtralExperts)});
  return rows;
}
const std::vector<NameRow>& phi3_names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({outer_names(), pre_norm_names(), std::span(kPhi3Fused)});
  return rows;
}

const std::vector<NameRow>& ernie_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), paired_attention_names(), gated_names()});
  return rows;
}

constexpr NameRow kErnieBias[] = {
    {"layers.#.moe.router.bias", "model.layers.#.mlp.moe_statics.e_score_correction_bias", {.as = VectorAs::row}}};
const std::vector<NameRow>& ernie_moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kErnieBias), ernie_names(c), expert_names()});
  return rows;
}

}  // namespace
}  // namespace hf_llama

std::vector<HfFamily> hf_llama_families() {
  using namespace hf_llama;

  return {llama_family("llama", "LlamaForCausalLM", llama_fields),
          llama_family("mistral", "MistralForCausalLM", mistral_fields),
          llama_family("arcee", "ArceeForCausalLM", arcee_fields),
          llama_family("mixtral", "MixtralForCausalLM", mixtral_fields, mixtral_names),
          llama_family("phi3", "Phi3ForCausalLM", phi3_fields, phi3_names),
          llama_family("ministral", "MinistralForCausalLM", ministral_fields),
          llama_family("ministral3", "Ministral3ForCausalLM", ministral3_fields),
          llama_family("internlm3", "LlamaForCausalLM", internlm3_fields),
          llama_family("iquestcoder", "LlamaForCausalLM", iquestcoder_fields),
          llama_family("cwm", "CwmForCausalLM", cwm_fields),
          llama_family("ernie4_5", "Ernie4_5ForCausalLM", ernie_fields, ernie_names),
          {.family = "ernie4_5_moe",
           .model_type = "ernie4_5_moe",
           .architecture = "Ernie4_5_MoeForCausalLM",
           .fields = ernie_moe_fields,
           .names = ernie_moe_names,
           .base = "model.",
           // Predict a token further on, in training.
           .ignored = {"model.mtp_block.*", "model.mtp_emb_norm.*", "model.mtp_hidden_norm.*",
                       "model.mtp_linear_proj.*"}}};
}

}  // namespace weft
