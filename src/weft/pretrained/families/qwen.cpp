// Qwen's models as Hugging Face saves them: Llama's names; and from Qwen3-Next on, layers of the gated delta rule.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_qwen {
namespace {

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

// What a file without a key means:
struct AbsentExperts {
  int64_t experts, per_token, ffn, shared_ffn;
  bool normalises = false;
};
void qwen_expert_fields(HfFields& f, ModelConfig& c, const AbsentExperts& absent) {
  // Transformers 5 writes it as Mixtral's.
  f.size(f.has("num_local_experts") ? "num_local_experts" : "num_experts", c.experts, absent.experts);
  f.size("num_experts_per_tok", c.experts_per_token, absent.per_token);
  f.size("moe_intermediate_size", c.expert_ffn, absent.ffn);
  f.flag("norm_topk_prob", c.norm_topk, absent.normalises);
  balance_loss_field(f, c);
}

// Every n-th layer has experts, but for those that mlp_only_layers names.
void sparse_step_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kStep = "decoder_sparse_step", *kDense = "mlp_only_layers";
  int64_t step = 1;
  f.size(kStep, step, 1);
  if (!f.is_reading()) {
    nlohmann::json& dense = f.to()[kDense] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i)
      if (!c.has_experts(i)) dense.push_back(i);
    return;
  }
  if (step < 1) f.refuse(kStep, "it must be at least 1");
  std::vector<bool> told;
  for (int64_t i = 0; i < c.layers; ++i) told.push_back((i + 1) % step == 0);
  if (f.has(kDense)) {
    const JsonView dense = f.from().at(kDense);
    for (int64_t i = 0; i < dense.size(); ++i)
      if (const int64_t layer = dense.at(i).integer(); layer >= 0 && layer < c.layers) told[size_t(layer)] = false;
  }
  set_expert_layers(c, told);
}

void qwen3_moe_fields(HfFields& f, ModelConfig& c) {
  qwen3_fields(f, c);
  qwen_expert_fields(f, c, {.experts = 128, .per_token = 8, .ffn = 768, .shared_ffn = 0});
  sparse_step_fields(f, c);
}

// Mellum 2 of JetBrains: local layers between global ones, each kind with angles of its own.
void mellum_fields(HfFields& f, ModelConfig& c) {
  constexpr double kTheta = 500000, kLocalTheta = 10000;
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 4});
  attention_bias_field(f, c);
  window_field(f, c, 1024);
  if (f.is_reading() && !f.has("layer_types")) c.window = 0;
  layer_types_field(f, c);
  qwen_expert_fields(f, c, {.experts = 64, .per_token = 8, .ffn = 896, .shared_ffn = 0, .normalises = true});
  sparse_layers_fields(f, c, 0);
  if (!f.is_reading()) return write_rope_by_layer(f, c, kTheta);
  if (rope_fields_by_layer(f, c, kTheta, kLocalTheta)) return;
  rope_fields(f, c, kTheta);
  c.local_rope_theta = kLocalTheta;
}

// The shared experts are one, as wide as they are together.
void shared_expert_fields(HfFields& f, ModelConfig& c, const AbsentExperts& absent) {
  constexpr const char* kShared = "shared_expert_intermediate_size";
  qwen_expert_fields(f, c, absent);
  shared_width_field(f, c, kShared, absent.shared_ffn);
  if (c.shared_experts == 0) f.refuse(kShared, "it must be a multiple of moe_intermediate_size");
}

void qwen2_moe_fields(HfFields& f, ModelConfig& c) {
  qwen2_fields(f, c);
  f.flag("qkv_bias", c.qkv_bias, true);
  shared_expert_fields(f, c, {.experts = 60, .per_token = 4, .ffn = 1408, .shared_ffn = 5632});
  sparse_step_fields(f, c);
}

// Which layers attend: by name, or every n-th.
void attending_layers(HfFields& f, ModelConfig& c) {
  f.size("full_attention_interval", c.attention_every, 4);
  attending_layers_field(f, c, "full_attention", "linear_attention");
}

void delta_fields(HfFields& f, ModelConfig& c, const Absent& absent) {
  llama_shape_fields(f, c, absent);
  rope_fields(f, c, 10000, "partial_rotary_factor", 0.25);
  attention_bias_field(f, c);
  f.size("linear_num_value_heads", c.state_heads, 32);
  f.size("linear_num_key_heads", c.state_key_heads, 16);
  f.size("linear_key_head_dim", c.state_key_dim, 128);
  f.size("linear_value_head_dim", c.state_value_dim, 128);
  f.size("linear_conv_kernel_dim", c.state_conv, 4);
  attending_layers(f, c);
}

void qwen3_next_fields(HfFields& f, ModelConfig& c) {
  delta_fields(f, c, {.head_dim = 256, .kv_heads = 2});
  shared_expert_fields(f, c, {.experts = 512, .per_token = 10, .ffn = 512, .shared_ffn = 512, .normalises = true});
  sparse_step_fields(f, c);
}
void qwen3_5_fields(HfFields& f, ModelConfig& c) { delta_fields(f, c, {.head_dim = 256, .kv_heads = 4}); }
void qwen3_5_moe_fields(HfFields& f, ModelConfig& c) {
  delta_fields(f, c, {.head_dim = 256, .kv_heads = 2, .ffn = 512});
  shared_expert_fields(f, c, {.experts = 256, .per_token = 8, .ffn = 512, .shared_ffn = 512, .normalises = true});
}

// Of Qwen3-VL: all experts of a layer in two tensors.
constexpr NameRow kTransposedStacks[] = {
    {"layers.#.moe.router", "model.layers.#.mlp.gate"},
    {"layers.#.moe.experts.gate.weight",
     "model.layers.#.mlp.experts.gate_up_proj",
     {.part = Part::gate, .is_transposed = true}},
    {"layers.#.moe.experts.up.weight",
     "model.layers.#.mlp.experts.gate_up_proj",
     {.part = Part::up, .is_transposed = true}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.mlp.experts.down_proj", {.is_transposed = true}},
};
constexpr NameRow kSharedExpert[] = {
    {"layers.#.moe.shared.gate", "model.layers.#.mlp.shared_expert.gate_proj"},
    {"layers.#.moe.shared.up", "model.layers.#.mlp.shared_expert.up_proj"},
    {"layers.#.moe.shared.down", "model.layers.#.mlp.shared_expert.down_proj"},
    {"layers.#.moe.shared_gate", "model.layers.#.mlp.shared_expert_gate"},
};
// Each head's query and the gate of what it gives.
constexpr NameRow kGatedHeads[] = {
    {"layers.#.attention.query", "model.layers.#.self_attn.q_proj", {.part = Part::head_query}},
    {"layers.#.attention.gate", "model.layers.#.self_attn.q_proj", {.part = Part::head_gate}},
};
constexpr NameRow kDelta[] = {
    {"layers.#.state.query_conv",
     "model.layers.#.linear_attn.conv1d",
     {.part = Part::state_query, .is_convolution = true}},
    {"layers.#.state.key_conv",
     "model.layers.#.linear_attn.conv1d",
     {.part = Part::state_key, .is_convolution = true}},
    {"layers.#.state.value_conv",
     "model.layers.#.linear_attn.conv1d",
     {.part = Part::state_value, .is_convolution = true}},
    {"layers.#.state.rate", "model.layers.#.linear_attn.A_log"},
    {"layers.#.state.shift", "model.layers.#.linear_attn.dt_bias"},
    {"layers.#.state.norm", "model.layers.#.linear_attn.norm"},
    {"layers.#.state.output", "model.layers.#.linear_attn.out_proj"},
};
constexpr NameRow kDeltaInputs[] = {
    {"layers.#.state.query", "model.layers.#.linear_attn.in_proj_qkv", {.part = Part::state_query}},
    {"layers.#.state.key", "model.layers.#.linear_attn.in_proj_qkv", {.part = Part::state_key}},
    {"layers.#.state.value", "model.layers.#.linear_attn.in_proj_qkv", {.part = Part::state_value}},
    {"layers.#.state.gate", "model.layers.#.linear_attn.in_proj_z"},
    {"layers.#.state.beta", "model.layers.#.linear_attn.in_proj_b"},
    {"layers.#.state.decay", "model.layers.#.linear_attn.in_proj_a"},
};
constexpr NameRow kGroupedDeltaInputs[] = {
    {"layers.#.state.query",
     "model.layers.#.linear_attn.in_proj_qkvz",
     {.part = Part::state_query, .is_grouped = true}},
    {"layers.#.state.key", "model.layers.#.linear_attn.in_proj_qkvz", {.part = Part::state_key, .is_grouped = true}},
    {"layers.#.state.value",
     "model.layers.#.linear_attn.in_proj_qkvz",
     {.part = Part::state_value, .is_grouped = true}},
    {"layers.#.state.gate",
     "model.layers.#.linear_attn.in_proj_qkvz",
     {.part = Part::state_gate, .is_grouped = true}},
    {"layers.#.state.beta", "model.layers.#.linear_attn.in_proj_ba", {.part = Part::state_beta, .is_grouped = true}},
    {"layers.#.state.decay",
     "model.layers.#.linear_attn.in_proj_ba",
     {.part = Part::state_decay, .is_grouped = true}},
};
// Of published Qwen3.5 models with experts: all experts of a layer in two tensors.
constexpr NameRow kStacks[] = {
    {"layers.#.moe.experts.gate.weight", "model.layers.#.mlp.experts.gate_up_proj", {.part = Part::gate}},
    {"layers.#.moe.experts.up.weight", "model.layers.#.mlp.experts.gate_up_proj", {.part = Part::up}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.mlp.experts.down_proj"},
};

const std::vector<NameRow>& qwen2_moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kSharedExpert), llama_names(c)});
  return rows;
}
const std::vector<NameRow>& qwen3_stack_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), gated_names(), std::span(kTransposedStacks)});
  return rows;
}
const std::vector<NameRow>& qwen3_next_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kGatedHeads), std::span(kGroupedDeltaInputs),
                                                   std::span(kDelta), std::span(kSharedExpert), llama_names(c)});
  return rows;
}
const std::vector<NameRow>& qwen3_5_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined(
      {std::span(kGatedHeads), std::span(kDeltaInputs), std::span(kDelta), std::span(kSharedExpert), llama_names(c)});
  return rows;
}
const std::vector<NameRow>& qwen3_5_stack_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kStacks), qwen3_5_names(c)});
  return rows;
}

constexpr NameRow kMtp[] = {{"layers.#.mtp.embedding_norm", "mtp.pre_fc_norm_embedding"},
                            {"layers.#.mtp.hidden_norm", "mtp.pre_fc_norm_hidden"},
                            {"layers.#.mtp.projection", "mtp.fc"},
                            {"layers.#.mtp.norm", "mtp.norm"}};

// With a part that predicts a token further on.
HfFamily family_with_mtp(std::string_view family, std::string_view model_type, std::string_view architecture,
                         void (*fields)(HfFields&, ModelConfig&),
                         const std::vector<NameRow>& (*names)(const ModelConfig&)) {
  return {.family = family,
          .model_type = model_type,
          .architecture = architecture,
          .fields = fields,
          .names = names,
          .base = "model.",
          .mtp = kMtp,
          .mtp_layer = "mtp.layers.0",
          .mtp_key = "mtp_num_hidden_layers"};
}

}  // namespace
}  // namespace hf_qwen

std::vector<HfFamily> hf_qwen_families() {
  using namespace hf_qwen;

  HfFamily qwen3_5_moe =
      family_with_mtp("qwen3_5_moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", qwen3_5_moe_fields, qwen3_5_names);
  qwen3_5_moe.names_of_stacks = qwen3_5_stack_names;
  HfFamily mellum = llama_family("mellum", "MellumForCausalLM", mellum_fields);
  mellum.ignored = {"mtp.*"};
  return {llama_family("qwen2", "Qwen2ForCausalLM", qwen2_fields),
          llama_family("qwen3", "Qwen3ForCausalLM", qwen3_fields),
          llama_family("qwen2_moe", "Qwen2MoeForCausalLM", qwen2_moe_fields, qwen2_moe_names),
          llama_family("qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe_fields),
          {.family = "qwen3_moe",
           .model_type = "qwen3_vl_moe_text",
           .architecture = "Qwen3VLMoeForConditionalGeneration",
           .fields = qwen3_moe_fields,
           .names = qwen3_stack_names,
           .base = "model."},
          mellum,
          family_with_mtp("qwen3_next", "qwen3_next", "Qwen3NextForCausalLM", qwen3_next_fields, qwen3_next_names),
          family_with_mtp("qwen3_5", "qwen3_5_text", "Qwen3_5ForCausalLM", qwen3_5_fields, qwen3_5_names),
          qwen3_5_moe};
}

}  // namespace weft
