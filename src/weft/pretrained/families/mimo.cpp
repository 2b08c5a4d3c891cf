// MiMo-V2-Flash as Hugging Face saves it: values narrower than keys and multiplied by a number, local layers with
// twice as many heads of keys and with sinks, and experts as in DeepSeek-V3.
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_mimo {
namespace {

constexpr double kTheta = 5e6, kLocalTheta = 1e4, kTurnedShare = 0.334;

// The window is one token longer than sliding_window_size, of published files, says.
void window_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kWindow = "sliding_window", *kSize = "sliding_window_size", *kTypes = "layer_types";
  if (!f.is_reading()) {
    f.size(kWindow, c.window);
    layer_types_field(f, c);
    f.to()[kSize] = nullptr;
    return;
  }
  f.size(kWindow, c.window, 129);
  if (f.has(kSize)) {
    f.size(kSize, c.window);
    ++c.window;
  }
  if (f.has(kTypes)) return layer_types_field(f, c);
  constexpr int64_t kEvery = 6;
  c.first_local_layer = 1, c.global_every = kEvery;
}

// Angles of both kinds of layers, of which the same share turns.
void angle_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kAngles = "rope_parameters", *kShare = "partial_rotary_factor";
  if (!f.is_reading()) {
    const double share = double(c.turned_dim()) / double(c.head_dim);
    write_rope_by_layer(f, c, kTheta);
    for (const char* kind : {"full_attention", "sliding_attention"}) f.to()[kAngles][kind][kShare] = share;
    return;
  }
  double share = kTurnedShare;
  if (rope_fields_by_layer(f, c, kTheta, kLocalTheta)) {
    const JsonView angles = f.from().at(kAngles);
    share = angles.at("full_attention").number_or(kShare, kTurnedShare);
    if (angles.at("sliding_attention").number_or(kShare, kTurnedShare) != share)
      f.refuse(kAngles, "the same share of heads must turn in all layers");
  } else if (f.has(kAngles)) {
    f.refuse(kAngles, "it must tell full_attention and sliding_attention");
  } else {
    c.rope_theta = kTheta, c.local_rope_theta = kLocalTheta;
  }
  if (!(share > 0 && share <= 1)) f.refuse(kAngles, "partial_rotary_factor must be above 0 and at most 1");
  c.rotary_dim = int64_t(double(c.head_dim) * share);
}

// Of global layers, as the file says it; of local ones twice as many.
void key_head_fields(HfFields& f, ModelConfig& c) {
  int64_t of_global = c.global_kv_heads > 0 ? c.global_kv_heads : c.kv_heads;
  f.size("num_key_value_heads", of_global, 4);
  if (!f.is_reading()) return;
  const bool has_local = c.window > 0;
  c.kv_heads = has_local ? 2 * of_global : of_global;
  c.global_kv_heads = has_local ? of_global : 0;
}

// null: 1. What values are multiplied by is the same of what attention gives, whose projection has no bias.
void value_scale_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kScale = "attention_value_scale";
  constexpr double kUsual = 0.707;
  f.number(kScale, c.attention_out_scale, f.is_null(kScale) ? 1 : kUsual);
}

// A list of 0 and 1, one for each layer.
void layer_flags(const HfFields& f, const char* key, const ModelConfig& c, FunctionRef<bool(int64_t)> flag) {
  if (!f.has(key)) return;
  const JsonView told = f.from().at(key);
  bool is_same = told.size() == c.layers;
  for (int64_t i = 0; is_same && i < c.layers; ++i) is_same = (told.at(i).integer(0, 1) == 1) == flag(i);
  if (!is_same)
    f.refuse(key, "layer_types and mlp_layer_types, or what the library has in their place, say otherwise");
}

// Keys of the published files that the library does not read: they must say what it has.
void published_fields(HfFields& f, const ModelConfig& c) {
  f.only("add_swa_attention_sink_bias", true);
  f.only("add_full_attention_sink_bias", false);
  f.only("scoring_func", "sigmoid");
  if (!f.is_reading()) return;
  const std::pair<const char*, double> numbers[] = {{"swa_num_attention_heads", double(c.heads)},
                                                    {"swa_num_key_value_heads", double(c.kv_heads)},
                                                    {"swa_head_dim", double(c.head_dim)},
                                                    {"swa_v_head_dim", double(c.values_dim())},
                                                    {"rope_theta", c.rope_theta},
                                                    {"swa_rope_theta", c.local_rope_theta}};
  for (const auto& [key, value] : numbers)
    if (f.from().number_or(key, value) != value) f.refuse(key, fmt::format("only {} is", value));
  constexpr const char *kEps = "layernorm_epsilon", *kShare = "partial_rotary_factor", *kScaling = "rope_scaling";
  if (float(f.from().number_or(kEps, double(c.norm_eps))) != c.norm_eps)
    f.refuse(kEps, fmt::format("only {} is", c.norm_eps));
  if (f.has(kShare) && int64_t(double(c.head_dim) * f.from().at(kShare).number()) != c.turned_dim())
    f.refuse(kShare, fmt::format("{} of the {} elements of a head turn", c.turned_dim(), c.head_dim));
  if (f.has(kScaling)) f.refuse(kScaling, "only null is");
  layer_flags(f, "hybrid_layer_pattern", c, [&](int64_t i) { return c.is_local(i); });
  layer_flags(f, "moe_layer_freq", c, [&](int64_t i) { return c.has_experts(i); });
}

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 131072);
  f.size("hidden_size", c.hidden);
  f.size("intermediate_size", c.ffn);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.size("head_dim", c.head_dim, 192);
  int64_t value_dim = c.values_dim();
  f.size("v_head_dim", value_dim, 128);
  c.value_dim = value_dim;
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  f.flag("attention_bias", c.qkv_bias, false);
  value_scale_field(f, c);
  window_fields(f, c);
  key_head_fields(f, c);
  angle_fields(f, c);
  f.size("n_routed_experts", c.experts, 256);
  f.size("num_experts_per_tok", c.experts_per_token, 8);
  f.size("moe_intermediate_size", c.expert_ffn, 2048);
  f.number("routed_scaling_factor", c.routed_scale, 1);
  f.size("n_group", c.expert_groups, 1);
  f.size("topk_group", c.groups_per_token, 1);
  f.flag("norm_topk_prob", c.norm_topk, true);
  sparse_layers_fields(f, c, 1);
  published_fields(f, c);
}

constexpr NameRow kOwn[] = {
    {"layers.#.attention.sinks", "model.layers.#.self_attn.attention_sink_bias"},
    {"layers.#.moe.router.bias", "model.layers.#.mlp.gate.e_score_correction_bias"},
};
const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kOwn), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_mimo

std::vector<HfFamily> hf_mimo_families() {
  using namespace hf_mimo;

  HfFamily family = llama_family("mimo_v2_flash", "MiMoV2FlashForCausalLM", fields, names);
  family.ignored.emplace_back("model.mtp.*");
  return {family};
}

}  // namespace weft
