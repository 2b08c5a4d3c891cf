// Liquid AI's LFM2 as Hugging Face saves it: gated convolutions between layers that attend; with experts chosen by a
// sigmoid. And LFM3, of whose layers that attend some are local: their heads are gated, and norms stand on both sides
// of all parts.
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

constexpr std::string_view kGlobal = "full_attention", kLocal = "sliding_attention", kConvolution = "conv";

// Of a file that does not name them: of four layers the third is global and, but for the first, the first is local.
std::string_view absent_kind(int64_t layer) {
  return layer % 4 == 2 ? kGlobal : layer % 4 == 0 && layer > 0 ? kLocal : kConvolution;
}

void lfm3_layers_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kTypes = "layer_types", *kWindow = "sliding_window";
  window_field(f, c, 256);
  if (!f.is_reading()) {
    nlohmann::json& types = f.to()[kTypes] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i)
      types.push_back(c.is_recurrent(i) ? kConvolution : c.is_local(i) ? kLocal : kGlobal);
    return;
  }
  if (f.has(kTypes) && f.from().at(kTypes).size() != c.layers) f.refuse(kTypes, "it must name every layer");
  bool has_local = false;
  std::vector<bool> attends, is_local;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string kind = f.has(kTypes) ? f.from().at(kTypes).at(i).string() : std::string(absent_kind(i));
    if (kind != kGlobal && kind != kLocal && kind != kConvolution)
      f.refuse(kTypes, fmt::format("there are {}, {} and {}, not {}", kGlobal, kLocal, kConvolution, kind));
    has_local |= kind == kLocal;
    attends.push_back(kind != kConvolution), is_local.push_back(kind != kGlobal);
  }
  if (has_local && c.window == 0) f.refuse(kWindow, "it must be a number where layers are sliding_attention");
  if (!has_local) is_local.assign(is_local.size(), false);
  c.global_every = 0;
  set_local_layers(c, is_local);
  set_attending_layers(c, attends);
}

void lfm3_rope_fields(HfFields& f, ModelConfig& c) {
  constexpr double kTheta = 1e6, kLocalTheta = 10000;
  if (!f.is_reading()) return write_rope_by_layer(f, c, kTheta);
  if (!f.has("rope_parameters")) return;  // as the family's own
  c.rope_scaling = {};
  if (!rope_fields_by_layer(f, c, kTheta, kLocalTheta))
    f.refuse("rope_parameters", "it must tell both kinds of layers");
}

void lfm3_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c, 7680);
  f.size("num_key_value_heads", c.kv_heads, 4);
  f.size("head_dim", c.head_dim, 128);
  f.size("max_position_embeddings", c.context, 128000);
  f.number(either(f, "norm_eps", "rms_norm_eps"), c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  attention_bias_field(f, c);
  lfm3_rope_fields(f, c);
  f.size("conv_L_cache", c.state_conv, 7);
  f.only("conv_bias", false);
  f.flag("use_attention_gate", c.attention_gate, true);
  bool has_norms_behind = c.block == BlockKind::both;
  f.flag("use_sandwich_norm", has_norms_behind, true);
  if (f.is_reading()) c.block = has_norms_behind ? BlockKind::both : BlockKind::pre;
  lfm3_layers_fields(f, c);
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

constexpr NameRow kLfm3[] = {
    {"layers.#.attention_post_norm", "model.layers.#.post_operator_norm"},
    {"layers.#.mlp_post_norm", "model.layers.#.post_ffn_norm"},
    {"layers.#.attention.gate", "model.layers.#.self_attn.gate_proj"},
};
const std::vector<NameRow>& lfm3_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kLfm3), attention_names(), std::span(names(c))});
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
           .base = "model."},
          {.family = "lfm3",
           .model_type = "lfm3",
           .architecture = "Lfm3ForCausalLM",
           .fields = lfm3_fields,
           .names = lfm3_names,
           .base = "model."}};
}

}  // namespace weft
