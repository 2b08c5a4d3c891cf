// Liquid AI's LFM2 as Hugging Face saves it: gated convolutions between layers that attend; with experts chosen by a
// sigmoid.
#include "weft/pretrained/families/families.h"

#include <nlohmann/json.hpp>

#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_lfm2 {
namespace {

void shared_fields(HfFields& f, ModelConfig& c, int64_t absent_ffn) {
  common_shape_fields(f, c, absent_ffn);
  f.number("norm_eps", c.norm_eps, 1e-5);
  rope_fields(f, c, 1e6);
  f.size("conv_L_cache", c.state_conv, 3);
  f.only("conv_bias", false);
  f.flag(f.has("tie_embedding") ? "tie_embedding" : "tie_word_embeddings", c.tie_embeddings, true);
}

// The layers that attend as numbers, as older files have them; all where nothing says which.
void attending_layers(HfFields& f, ModelConfig& c) {
  constexpr const char* kNumbers = "full_attn_idxs";
  if (attending_layers_field(f, c, "full_attention", "conv")) return;
  std::vector<bool> attends(size_t(c.layers), !f.has(kNumbers));
  if (f.has(kNumbers)) {
    const JsonView numbers = f.from().at(kNumbers);
    for (int64_t i = 0; i < numbers.size(); ++i) attends[size_t(numbers.at(i).integer(0, c.layers - 1))] = true;
  }
  set_attending_layers(c, attends);
}

// Two thirds of what a file says, times a factor, up to a multiple, where it says so. Another name of the width comes
// first.
void read_width(HfFields& f, ModelConfig& c) {
  constexpr const char *kWidth = "block_ff_dim", *kMultiple = "block_multiple_of";
  if (f.has(kWidth)) f.size(kWidth, c.ffn);
  bool is_adjusted = true;
  f.flag("block_auto_adjust_ff_dim", is_adjusted, true);
  if (!is_adjusted) return;
  constexpr double kMost = 1 << 24;
  double factor = 1;
  int64_t multiple = 256;
  f.number("block_ffn_dim_multiplier", factor, 1);
  f.size(kMultiple, multiple, 256);
  if (multiple < 1) f.refuse(kMultiple, "it must be at least 1");
  const double scaled = factor * double(2 * c.ffn / 3);
  if (!(scaled >= 1 && scaled <= kMost)) f.refuse("block_ffn_dim_multiplier", "no layer is as wide as it says");
  c.ffn = (int64_t(scaled) + multiple - 1) / multiple * multiple;
}

void fields(HfFields& f, ModelConfig& c) {
  shared_fields(f, c, 12288);
  attending_layers(f, c);
  if (f.is_reading()) return read_width(f, c);
  f.to()["block_auto_adjust_ff_dim"] = false;
}

void moe_fields(HfFields& f, ModelConfig& c) {
  shared_fields(f, c, 7168);
  attending_layers(f, c);
  f.size("num_experts", c.experts, 32);
  f.size("num_experts_per_tok", c.experts_per_token, 4);
  f.size("moe_intermediate_size", c.expert_ffn, 1792);
  f.size("num_dense_layers", c.first_dense_layers, 2);
  f.flag("norm_topk_prob", c.norm_topk, true);
  f.number("routed_scaling_factor", c.routed_scale, 1);
  f.flag("use_expert_bias", c.router_bias, true);
}

constexpr NameRow kNames[] = {
    {"final_norm", "model.embedding_norm"},
    {"layers.#.attention_norm", "model.layers.#.operator_norm"},
    {"layers.#.mlp_norm", "model.layers.#.ffn_norm"},
    {"layers.#.attention.output", "model.layers.#.self_attn.out_proj"},
    {"layers.#.attention.query_norm", "model.layers.#.self_attn.q_layernorm"},
    {"layers.#.attention.key_norm", "model.layers.#.self_attn.k_layernorm"},
    {"layers.#.state.key", "model.layers.#.conv.in_proj", {.part = Part::state_key}},
    {"layers.#.state.query", "model.layers.#.conv.in_proj", {.part = Part::state_query}},
    {"layers.#.state.value", "model.layers.#.conv.in_proj", {.part = Part::state_value}},
    {"layers.#.state.value_conv", "model.layers.#.conv.conv", {.is_convolution = true}},
    {"layers.#.state.output", "model.layers.#.conv.out_proj"},
    {"layers.#.mlp.gate", "model.layers.#.feed_forward.w1"},
    {"layers.#.mlp.up", "model.layers.#.feed_forward.w3"},
    {"layers.#.mlp.down", "model.layers.#.feed_forward.w2"},
    {"layers.#.moe.router.bias", "model.layers.#.feed_forward.expert_bias"},
    {"layers.#.moe.router", "model.layers.#.feed_forward.gate"},
    {"layers.#.moe.experts.gate", "model.layers.#.feed_forward.experts.@.w1"},
    {"layers.#.moe.experts.up", "model.layers.#.feed_forward.experts.@.w3"},
    {"layers.#.moe.experts.down", "model.layers.#.feed_forward.experts.@.w2"},
};
const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames), attention_names(), outer_names()});
  return rows;
}

}  // namespace
}  // namespace hf_lfm2

std::vector<HfFamily> hf_lfm2_families() {
  using namespace hf_lfm2;

  return {{.family = "lfm2",
           .model_type = "lfm2",
           .architecture = "Lfm2ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."},
          {.family = "lfm2_moe",
           .model_type = "lfm2_moe",
           .architecture = "Lfm2MoeForCausalLM",
           .fields = moe_fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
