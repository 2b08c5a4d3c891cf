// IBM's Granite as Hugging Face saves it: Llama with a factor at each end and at each sum; with experts, those of a
// layer in two tensors; of version 4, with layers of Mamba-2 between those that attend.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_granite {
namespace {

// Logits are divided by a number, which is mostly a whole one.
void logit_scale_field(HfFields& f, ModelConfig& c) {
  double divisor = 1 / double(c.logit_scale);
  if (std::abs(divisor - std::round(divisor)) < 1e-4 * divisor) divisor = std::round(divisor);
  f.number("logits_scaling", divisor, 1);
  if (!(divisor > 0)) f.refuse("logits_scaling", "it must be above 0");
  c.logit_scale = float(1 / divisor);
}

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c);
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  if (!f.is_reading() && c.attention_scale == 0) c.attention_scale = float(1 / std::sqrt(double(c.head_dim)));
  f.number("attention_multiplier", c.attention_scale, 1);
  f.number("embedding_multiplier", c.embedding_scale, 1);
  f.number("residual_multiplier", c.residual_scale, 1);
  logit_scale_field(f, c);
}

void moe_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  fields(f, c);
  f.size("num_local_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  balance_loss_field(f, c);
}

// Layers of Mamba-2, as wide as mamba_expand says.
void mamba_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kHeads = "mamba_n_heads", *kExpand = "mamba_expand", *kHeadDim = "mamba_d_head";
  f.size(kHeads, c.state_heads, 128);
  f.size("mamba_n_groups", c.state_key_heads, 1);
  f.size("mamba_d_state", c.state_key_dim, 256);
  f.size("mamba_d_conv", c.state_conv, 4);
  f.flag("mamba_conv_bias", c.state_conv_bias, true);
  f.only("mamba_proj_bias", false);
  int64_t expand = 0;
  if (!f.is_reading()) {
    const int64_t values = c.state_heads * c.state_value_dim;
    if (values % c.hidden != 0)
      throw Error("granitemoehybrid models have states of a multiple of {} values, but this one has {}", c.hidden,
                  values);
    expand = values / c.hidden;
    f.size(kExpand, expand, 2);
    f.to()[kHeadDim] = c.state_value_dim;
    return;
  }
  f.size(kExpand, expand, 2);
  if (c.state_heads <= 0 || expand <= 0 || expand > 64 || expand * c.hidden % c.state_heads != 0)
    f.refuse(kHeads, "it must divide mamba_expand * hidden_size");
  c.state_value_dim = expand * c.hidden / c.state_heads;
  if (!f.has(kHeadDim) || f.from().at(kHeadDim).is_string()) return;  // "auto"
  int64_t told = 0;
  f.size(kHeadDim, told);
  if (told != c.state_value_dim) f.refuse(kHeadDim, "heads must be mamba_expand * hidden_size wide together");
}

// The expert that sees all tokens is the MLP where there are no others.
void hybrid_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kShared = "shared_intermediate_size";
  if (!f.is_reading() && c.experts > 0) c.ffn = c.expert_ffn;
  fields(f, c);
  f.size("num_local_experts", c.experts, 8);
  int64_t shared = c.experts > 0 ? c.shared_experts * c.expert_ffn : c.ffn;
  f.size(kShared, shared, 1024);
  if (c.experts > 0) {
    f.size("num_experts_per_tok", c.experts_per_token, 2);
    balance_loss_field(f, c);
  }
  if (f.is_reading() && c.experts == 0) c.ffn = shared;
  if (f.is_reading() && c.experts > 0) {
    if (c.ffn <= 0 || shared % c.ffn != 0) f.refuse(kShared, "it must be a multiple of intermediate_size");
    c.shared_experts = shared / c.ffn;
  }
  if (!attending_layers_field(f, c, "attention", "mamba"))
    set_attending_layers(c, std::vector<bool>(size_t(c.layers), false));
  if (c.has_states())
    mamba_fields(f, c);
  else if (!f.is_reading())
    f.to()["mamba_n_heads"] = 1;  // which divides every width, as the library asks of models without such layers too
  // Any other word, and none: attention knows no positions.
  bool is_rotated = c.unrotated_every == 0;
  f.choice<bool>("position_embedding_type", is_rotated, {{"rope", true}, {"nope", false}}, "nope");
  c.unrotated_every = is_rotated ? 0 : 1;
}

constexpr NameRow kExperts[] = {
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.router.layer"},
    {"layers.#.moe.experts.gate", "model.layers.#.block_sparse_moe.input_linear", {.part = Part::gate}},
    {"layers.#.moe.experts.up", "model.layers.#.block_sparse_moe.input_linear", {.part = Part::up}},
    {"layers.#.moe.experts.down", "model.layers.#.block_sparse_moe.output_linear"},
};
const std::vector<NameRow>& moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kExperts), llama_names(c)});
  return rows;
}

constexpr NameRow kShared[] = {
    {"layers.#.mlp.gate", "model.layers.#.shared_mlp.input_linear", {.part = Part::gate}},
    {"layers.#.mlp.up", "model.layers.#.shared_mlp.input_linear", {.part = Part::up}},
    {"layers.#.mlp.down", "model.layers.#.shared_mlp.output_linear"},
    {"layers.#.moe.shared.gate", "model.layers.#.shared_mlp.input_linear", {.part = Part::gate}},
    {"layers.#.moe.shared.up", "model.layers.#.shared_mlp.input_linear", {.part = Part::up}},
    {"layers.#.moe.shared.down", "model.layers.#.shared_mlp.output_linear"},
};
constexpr Layout of_inputs(Part part) { return {.part = part, .has_gates = true}; }
constexpr Layout of_convolved(Part part) { return {.part = part, .is_convolution = true}; }
constexpr NameRow kMamba[] = {
    {"layers.#.state.gate", "model.layers.#.mamba.in_proj", of_inputs(Part::state_gate)},
    {"layers.#.state.value", "model.layers.#.mamba.in_proj", of_inputs(Part::state_value)},
    {"layers.#.state.key", "model.layers.#.mamba.in_proj", of_inputs(Part::state_key)},
    {"layers.#.state.query", "model.layers.#.mamba.in_proj", of_inputs(Part::state_query)},
    {"layers.#.state.decay", "model.layers.#.mamba.in_proj", of_inputs(Part::state_decay)},
    {"layers.#.state.value_conv", "model.layers.#.mamba.conv1d", of_convolved(Part::state_value)},
    {"layers.#.state.key_conv", "model.layers.#.mamba.conv1d", of_convolved(Part::state_key)},
    {"layers.#.state.query_conv", "model.layers.#.mamba.conv1d", of_convolved(Part::state_query)},
    {"layers.#.state.rate", "model.layers.#.mamba.A_log"},
    {"layers.#.state.shift", "model.layers.#.mamba.dt_bias"},
    {"layers.#.state.skip", "model.layers.#.mamba.D"},
    {"layers.#.state.norm", "model.layers.#.mamba.norm"},
    {"layers.#.state.output", "model.layers.#.mamba.out_proj"},
};
const std::vector<NameRow>& hybrid_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kShared), std::span(kMamba), std::span(moe_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_granite

std::vector<HfFamily> hf_granite_families() {
  using namespace hf_granite;

  return {{.family = "granite",
           .model_type = "granite",
           .architecture = "GraniteForCausalLM",
           .fields = fields,
           .names = llama_names,
           .base = "model."},
          {.family = "granitemoe",
           .model_type = "granitemoe",
           .architecture = "GraniteMoeForCausalLM",
           .fields = moe_fields,
           .names = moe_names,
           .base = "model."},
          {.family = "granitemoehybrid",
           .model_type = "granitemoehybrid",
           .architecture = "GraniteMoeHybridForCausalLM",
           .fields = hybrid_fields,
           .names = hybrid_names,
           .base = "model."}};
}

}  // namespace weft
