// Llama as Hugging Face saves it, and the models whose configuration and tensors differ from it in a few names.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

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

void ministral3_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5});
  scaled_query_rope_fields(f, c, 1e6);
  window_field(f, c);
  RopeScaling& s = c.rope_scaling;
  // Its `mscale` scales no scores.
  if (f.is_reading() && s.mscale_all > 0)
    s.attention_factor = s.rotation_factor(c.context), s.mscale = s.mscale_all = 0;
}

void seed_oss_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8});
  rope_fields(f, c, 10000);
  f.flag("attention_bias", c.qkv_bias, true);
  f.flag("attention_out_bias", c.output_bias, false);
  f.flag("mlp_bias", c.mlp_bias, false);
}

void ernie_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 2, .norm_eps = 1e-5, .is_tied = true});
  rope_fields(f, c, 500000);
  f.flag("use_bias", c.qkv_bias, false);
  c.output_bias = c.mlp_bias = c.qkv_bias;
}

void ernie_moe_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kLast = "moe_layer_end_index";
  llama_shape_fields(f, c, {.kv_heads = 4, .norm_eps = 1e-5, .is_tied = true});
  rope_fields(f, c, 500000);
  f.flag("use_bias", c.qkv_bias, false);
  c.output_bias = c.mlp_bias = c.qkv_bias;
  f.size("moe_num_experts", c.experts, 64);
  f.size("moe_k", c.experts_per_token, 6);
  f.size("moe_intermediate_size", c.expert_ffn, 1536);
  f.size("moe_num_shared_experts", c.shared_experts, 2);
  f.size("moe_layer_start_index", c.first_dense_layers, 1);
  f.only("moe_layer_interval", int64_t(1));
  f.number("router_aux_loss_coef", c.aux_loss, 0.001);
  if (!f.is_reading()) f.to()[kLast] = c.layers - 1;
  if (f.has(kLast) && f.from().at(kLast).integer() != -1 && f.from().at(kLast).integer() != c.layers - 1)
    f.refuse(kLast, "the last layers must have experts");
}

void qwen_window_fields(HfFields& f, ModelConfig& c) {
  bool is_used = c.window > 0;
  f.flag("use_sliding_window", is_used, false);
  f.size("sliding_window", c.window, 4096);
  if (!is_used) c.window = 0;
  last_layers_local_fields(f, c, 28);
}

void qwen_fields(HfFields& f, ModelConfig& c, const Absent& absent) {
  llama_shape_fields(f, c, absent);
  rope_fields(f, c, 10000);
  qwen_window_fields(f, c);
}
void qwen2_fields(HfFields& f, ModelConfig& c) { qwen_fields(f, c, {}); }

void qwen3_fields(HfFields& f, ModelConfig& c) {
  qwen_fields(f, c, {.head_dim = 128});
  attention_bias_field(f, c);
}

void mixtral_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  llama_shape_fields(f, c, {.norm_eps = 1e-5});
  rope_fields(f, c, 1e6);
  window_field(f, c);
  f.size("num_local_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  f.number("router_aux_loss_coef", c.aux_loss, 0.001);
}

// What a file without a key means:
struct AbsentExperts {
  int64_t experts, per_token, ffn;
};
void qwen_expert_fields(HfFields& f, ModelConfig& c, const AbsentExperts& absent) {
  // Transformers 5 writes it as Mixtral's.
  f.size(f.has("num_local_experts") ? "num_local_experts" : "num_experts", c.experts, absent.experts);
  f.size("num_experts_per_tok", c.experts_per_token, absent.per_token);
  f.size("moe_intermediate_size", c.expert_ffn, absent.ffn);
  f.flag("norm_topk_prob", c.norm_topk, false);
  f.number("router_aux_loss_coef", c.aux_loss, 0.001);
  f.only("decoder_sparse_step", int64_t(1));
  if (f.has("mlp_only_layers") && f.from().at("mlp_only_layers").size() > 0)
    f.refuse("mlp_only_layers", "every layer must have experts");
}

void qwen3_moe_fields(HfFields& f, ModelConfig& c) {
  qwen3_fields(f, c);
  qwen_expert_fields(f, c, {.experts = 128, .per_token = 8, .ffn = 768});
}

// The shared experts are one, as wide as they are together.
void qwen2_moe_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kShared = "shared_expert_intermediate_size";
  qwen2_fields(f, c);
  f.flag("qkv_bias", c.qkv_bias, true);
  qwen_expert_fields(f, c, {.experts = 60, .per_token = 4, .ffn = 1408});
  int64_t width = c.shared_experts * c.expert_ffn;
  f.size(kShared, width, 5632);
  if (c.expert_ffn <= 0 || width <= 0 || width % c.expert_ffn != 0)
    f.refuse(kShared, "it must be a multiple of moe_intermediate_size");
  c.shared_experts = width / c.expert_ffn;
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
// Of Qwen3-VL: all experts of a layer in two tensors.
constexpr NameRow kQwen3Stacks[] = {
    {"layers.#.moe.router", "model.layers.#.mlp.gate"},
    {"layers.#.moe.experts.gate.weight",
     "model.layers.#.mlp.experts.gate_up_proj",
     {.part = Part::gate, .is_transposed = true}},
    {"layers.#.moe.experts.up.weight",
     "model.layers.#.mlp.experts.gate_up_proj",
     {.part = Part::up, .is_transposed = true}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.mlp.experts.down_proj", {.is_transposed = true}},
};
constexpr NameRow kQwen2Shared[] = {
    {"layers.#.moe.shared.gate", "model.layers.#.mlp.shared_expert.gate_proj"},
    {"layers.#.moe.shared.up", "model.layers.#.mlp.shared_expert.up_proj"},
    {"layers.#.moe.shared.down", "model.layers.#.mlp.shared_expert.down_proj"},
    {"layers.#.moe.shared_gate", "model.layers.#.mlp.shared_expert_gate"},
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
const std::vector<NameRow>& qwen2_moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kQwen2Shared), llama_names(c)});
  return rows;
}
const std::vector<NameRow>& qwen3_stack_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), std::span(kQwen3Stacks)});
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
    {"layers.#.moe.router.bias", "model.layers.#.mlp.moe_statics.e_score_correction_bias", {.is_row = true}}};
const std::vector<NameRow>& ernie_moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kErnieBias), ernie_names(c), expert_names()});
  return rows;
}

HfFamily family(std::string_view name, std::string_view architecture, void (*fields)(HfFields&, ModelConfig&),
                const std::vector<NameRow>& (*names)(const ModelConfig&) = llama_names) {
  return {.family = name,
          .model_type = name,
          .architecture = architecture,
          .fields = fields,
          .names = names,
          .base = "model.",
          .ignored = {"model.layers.#.self_attn.rotary_emb.inv_freq"}};
}

}  // namespace
}  // namespace hf_llama

std::vector<HfFamily> hf_llama_families() {
  using namespace hf_llama;

  return {family("llama", "LlamaForCausalLM", llama_fields),
          family("mistral", "MistralForCausalLM", mistral_fields),
          family("qwen2", "Qwen2ForCausalLM", qwen2_fields),
          family("qwen3", "Qwen3ForCausalLM", qwen3_fields),
          family("mixtral", "MixtralForCausalLM", mixtral_fields, mixtral_names),
          family("qwen2_moe", "Qwen2MoeForCausalLM", qwen2_moe_fields, qwen2_moe_names),
          family("qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe_fields),
          {.family = "qwen3_moe",
           .model_type = "qwen3_vl_moe_text",
           .architecture = "Qwen3VLMoeForConditionalGeneration",
           .fields = qwen3_moe_fields,
           .names = qwen3_stack_names,
           .base = "model."},
          family("phi3", "Phi3ForCausalLM", phi3_fields, phi3_names),
          family("seed_oss", "SeedOssForCausalLM", seed_oss_fields),
          family("ministral", "MinistralForCausalLM", ministral_fields),
          family("ministral3", "Ministral3ForCausalLM", ministral3_fields),
          family("ernie4_5", "Ernie4_5ForCausalLM", ernie_fields, ernie_names),
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
