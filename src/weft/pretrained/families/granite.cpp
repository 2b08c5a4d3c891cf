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
const std::vector<NameRow>& hybrid_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kShared), mamba_names(), std::span(moe_names(c))});
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
