// What several architectures share: the keys of shapes, rotary positions, windows, experts and states, and tables of
// names.
#include <algorithm>
#include <cmath>

#include "weft/pretrained/gguf_families/gguf_families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace {

using Kind = RopeScaling::Kind;
constexpr Layout kPaired{.is_paired = true};

constexpr NameRow kPairedHeads[] = {{"layers.#.attention.query", "blk.#.attn_q", kPaired},
                                    {"layers.#.attention.key", "blk.#.attn_k", kPaired}};
constexpr NameRow kHalvedHeads[] = {{"layers.#.attention.query", "blk.#.attn_q"},
                                    {"layers.#.attention.key", "blk.#.attn_k"}};
constexpr NameRow kNames[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.value", "blk.#.attn_v"},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.attention.query_norm", "blk.#.attn_q_norm"},
    {"layers.#.attention.key_norm", "blk.#.attn_k_norm"},
    {"layers.#.attention_post_norm", "blk.#.post_attention_norm"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_gate"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"layers.#.mlp_post_norm", "blk.#.post_ffw_norm"},
    {"layers.#.moe.router", "blk.#.ffn_gate_inp"},
    {"layers.#.moe.router.bias", "blk.#.exp_probs_b.bias"},
    {"layers.#.moe.experts.gate", "blk.#.ffn_gate_exps"},
    {"layers.#.moe.experts.up", "blk.#.ffn_up_exps"},
    {"layers.#.moe.experts.down", "blk.#.ffn_down_exps"},
    {"layers.#.moe.shared.gate", "blk.#.ffn_gate_shexp"},
    {"layers.#.moe.shared.up", "blk.#.ffn_up_shexp"},
    {"layers.#.moe.shared.down", "blk.#.ffn_down_shexp"},
    {"layers.#.moe.shared_gate", "blk.#.ffn_gate_inp_shexp"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};

std::vector<double> wide(const std::vector<float>& narrow) { return {narrow.begin(), narrow.end()}; }
std::vector<float> narrow(const std::vector<double>& wide) { return {wide.begin(), wide.end()}; }

void read_factors(const GgufFields& f, ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  const auto find = [&](const char* name) {
    const auto found = f.from().factors.find(name);
    if (found == f.from().factors.end()) return std::vector<double>();
    return wide(found->second);
  };
  const std::vector<double> always = find("rope_freqs");
  s.kind = Kind::longrope;
  if (!always.empty()) {
    s.short_factors = s.long_factors = always;
    s.original_context = c.context, s.attention_factor = 1;
    return;
  }
  s.short_factors = find("rope_factors_short"), s.long_factors = find("rope_factors_long");
}

void factor_fields(GgufFields& f, ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  if (!f.is_reading()) {
    const bool are_same = s.short_factors == s.long_factors && s.attention_factor == 1;
    if (are_same && f.from().architecture != "phi3") {
      f.to().factors["rope_freqs"] = narrow(s.long_factors);
      return;
    }
    f.to().factors["rope_factors_short"] = narrow(s.short_factors);
    f.to().factors["rope_factors_long"] = narrow(s.long_factors);
    f.set("rope.scaling.type", std::string("longrope"));
  } else {
    read_factors(f, c);
    if (f.from().factors.contains("rope_freqs")) return;
  }
  f.size("rope.scaling.original_context_length", s.original_context, c.context);
  f.number("rope.scaling.attn_factor", s.attention_factor, 0);
}

// Of cosine and sine.
double implied_factor(RopeScaling scaling) {
  scaling.attention_factor = 0;
  return scaling.rotation_factor(0);
}

}  // namespace

std::span<const NameRow> gguf_paired_names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kPairedHeads), std::span(kNames)});
  return rows;
}

std::span<const NameRow> gguf_halved_names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kHalvedHeads), std::span(kNames)});
  return rows;
}

namespace {

constexpr Layout of_inputs(Part part) { return {.part = part, .has_gates = true}; }
constexpr NameRow kMamba[] = {
    {"layers.#.state.gate", "blk.#.ssm_in", of_inputs(Part::state_gate)},
    {"layers.#.state.value", "blk.#.ssm_in", of_inputs(Part::state_value)},
    {"layers.#.state.key", "blk.#.ssm_in", of_inputs(Part::state_key)},
    {"layers.#.state.query", "blk.#.ssm_in", of_inputs(Part::state_query)},
    {"layers.#.state.decay", "blk.#.ssm_in", of_inputs(Part::state_decay)},
    {"layers.#.state.value_conv", "blk.#.ssm_conv1d", {.part = Part::state_value}},
    {"layers.#.state.key_conv", "blk.#.ssm_conv1d", {.part = Part::state_key}},
    {"layers.#.state.query_conv", "blk.#.ssm_conv1d", {.part = Part::state_query}},
    {"layers.#.state.rate", "blk.#.ssm_a", {.as = VectorAs::column, .values = ValueMap::minus_exp}},
    {"layers.#.state.shift", "blk.#.ssm_dt.bias"},
    {"layers.#.state.skip", "blk.#.ssm_d", {.as = VectorAs::column}},
    {"layers.#.state.norm", "blk.#.ssm_norm", {.as = VectorAs::row_of_key}},
    {"layers.#.state.output", "blk.#.ssm_out"},
};

}  // namespace

std::span<const NameRow> gguf_mamba_names() { return kMamba; }

std::span<const NameRow> gguf_fused_heads() {
  static constexpr NameRow kRows[] = {{"layers.#.attention.query", "blk.#.attn_qkv", {.part = Part::query}},
                                      {"layers.#.attention.key", "blk.#.attn_qkv", {.part = Part::key}},
                                      {"layers.#.attention.value", "blk.#.attn_qkv", {.part = Part::value}}};
  return kRows;
}

std::span<const NameRow> gguf_fused_gate() {
  static constexpr NameRow kRows[] = {{"layers.#.mlp.gate", "blk.#.ffn_up", {.part = Part::gate}},
                                      {"layers.#.mlp.up", "blk.#.ffn_up", {.part = Part::up}}};
  return kRows;
}

std::span<const NameRow> gguf_offset_norms() {
  static constexpr Layout kPlusOne{.values = ValueMap::plus_one};
  static constexpr NameRow kRows[] = {
      {"layers.#.attention_norm", "blk.#.attn_norm", kPlusOne},
      {"layers.#.attention.query_norm", "blk.#.attn_q_norm", kPlusOne},
      {"layers.#.attention.key_norm", "blk.#.attn_k_norm", kPlusOne},
      {"layers.#.attention_post_norm", "blk.#.post_attention_norm", kPlusOne},
      {"layers.#.mlp_norm", "blk.#.ffn_norm", kPlusOne},
      {"layers.#.mlp_post_norm", "blk.#.post_ffw_norm", kPlusOne},
      {"final_norm", "output_norm", kPlusOne},
      {"layers.#.mtp.embedding_norm", "blk.#.nextn.enorm", kPlusOne},
      {"layers.#.mtp.hidden_norm", "blk.#.nextn.hnorm", kPlusOne},
      {"layers.#.mtp.norm", "blk.#.nextn.shared_head_norm", kPlusOne},
  };
  return kRows;
}

void gguf_shape_fields(GgufFields& f, ModelConfig& c) {
  f.size("block_count", c.layers);
  f.size("context_length", c.context);
  f.size("embedding_length", c.hidden);
  f.size("feed_forward_length", c.ffn, 0);
  f.size("attention.head_count", c.heads);
  f.size("attention.head_count_kv", c.kv_heads, c.heads);
}

void gguf_head_fields(GgufFields& f, ModelConfig& c) {
  f.size("attention.key_length", c.head_dim, c.heads > 0 ? c.hidden / c.heads : 0);
  int64_t value_dim = c.head_dim, turned = c.turned_dim();
  f.size("attention.value_length", value_dim, c.head_dim);
  f.size("rope.dimension_count", turned, c.head_dim);
  f.number("rope.freq_base", c.rope_theta, 10000);
  if (!f.is_reading()) return;
  if (value_dim != c.head_dim) f.refuse("attention.value_length", "it must be that of keys");
  c.rotary_dim = turned == c.head_dim ? 0 : turned;
}

void gguf_rms_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  gguf_head_fields(f, c);
}

void gguf_layer_norm_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps);
  gguf_head_fields(f, c);
}

void gguf_biased_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_bias_fields(f, c);
}

void gguf_scaling_fields(GgufFields& f, ModelConfig& c, bool has_factors) {
  RopeScaling& s = c.rope_scaling;
  if (has_factors && (f.is_reading() ? !f.from().factors.empty() : s.kind == Kind::longrope))
    return factor_fields(f, c);
  std::string type = s.kind == Kind::linear ? "linear" : s.kind == Kind::yarn ? "yarn" : "none";
  if (!f.is_reading() && s.kind == Kind::none) return;
  f.text("rope.scaling.type", type, "none");
  if (type == "none") return;
  if (type != "linear" && type != "yarn")
    f.refuse("rope.scaling.type", fmt::format("\"{}\" is not read; there are none, linear, yarn", type));
  s.kind = type == "linear" ? Kind::linear : Kind::yarn;
  f.number("rope.scaling.factor", s.factor, 1);
  if (s.kind == Kind::linear) return;
  f.size("rope.scaling.original_context_length", s.original_context, c.context);
  f.number("rope.scaling.yarn_beta_fast", s.beta_fast, 32);
  f.number("rope.scaling.yarn_beta_slow", s.beta_slow, 1);
  // A factor beside the one that the stretch implies.
  const double given = s.attention_factor, implied = implied_factor(s);
  double beside = given > 0 ? given / implied : 1;
  if (f.is_reading() || std::abs(beside - 1) > 1e-6) f.number("rope.scaling.attn_factor", beside, 1);
  if (f.is_reading()) s.attention_factor = beside == 1 ? 0 : beside * implied;
}

void gguf_window_fields(GgufFields& f, ModelConfig& c, int64_t absent, int64_t every, bool knows_windows) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  if (!f.is_reading()) {
    if (c.window == 0 && absent == 0) return;
    f.set("attention.sliding_window", c.window);
    std::vector<bool> is_local;
    for (int64_t i = 0; i < c.layers; ++i) is_local.push_back(c.is_local(i));
    if (c.first_local_layer > 0 || !c.global_layers.empty())
      f.set(kPattern, std::move(is_local));
    else if (c.global_every != every)
      f.set(kPattern, c.global_every);
    if (!knows_windows)
      f.note(
          fmt::format("llama.cpp lets every token see all before it in {} models, where local layers of this one "
                      "see the last {}: longer texts differ",
                      f.from().architecture, c.window));
    return;
  }
  f.size("attention.sliding_window", c.window, absent);
  c.first_local_layer = 0;
  if (c.window == 0) return;
  c.global_every = 0;
  if (const auto* flags = f.flags(kPattern)) {
    if (int64_t(flags->size()) != c.layers) f.refuse(kPattern, "it must tell every layer");
    set_local_layers(c, *flags);
  } else {
    f.size(kPattern, c.global_every, every);
  }
}

void gguf_bias_fields(const GgufFields& f, ModelConfig& c) {
  if (!f.is_reading()) return;
  c.bias = false;
  c.qkv_bias = f.from().has_qkv_bias, c.output_bias = f.from().has_output_bias, c.mlp_bias = f.from().has_mlp_bias;
}

void gguf_expert_fields(GgufFields& f, ModelConfig& c) {
  f.size("expert_count", c.experts, 0);
  if (c.experts == 0) return;
  f.size("expert_used_count", c.experts_per_token);
  f.size("expert_feed_forward_length", c.expert_ffn, c.ffn);
  if (c.ffn == 0) c.ffn = c.expert_ffn;
}

void gguf_router_field(GgufFields& f, ModelConfig& c, RouterGate otherwise) {
  constexpr const char* kKey = "expert_gating_func";
  constexpr int64_t kSoftmax = 1, kSigmoid = 2;
  int64_t gate = c.router == RouterGate::sigmoid ? kSigmoid : kSoftmax;
  f.size(kKey, gate, otherwise == RouterGate::sigmoid ? kSigmoid : kSoftmax);
  if (gate != kSoftmax && gate != kSigmoid)
    f.refuse(kKey, "experts are chosen by a softmax, which is 1, or a sigmoid, which is 2");
  c.router = gate == kSigmoid ? RouterGate::sigmoid : RouterGate::softmax;
  if (f.is_reading()) c.router_bias = f.from().has_router_bias;
}

void gguf_deepseek_expert_fields(GgufFields& f, ModelConfig& c, bool normalises_otherwise) {
  gguf_expert_fields(f, c);
  if (!f.is_reading() && c.experts == 0 && c.mtp_layers > 0)
    throw Error("the part that predicts a token further on has experts in models of this kind");
  f.size("expert_shared_count", c.shared_experts, 0);
  int64_t dense = c.experts > 0 ? c.first_dense_layers : c.layers;
  f.size("leading_dense_block_count", dense, 0);
  c.first_dense_layers = dense;
  f.size("expert_group_count", c.expert_groups, 1);
  f.size("expert_group_used_count", c.groups_per_token, 1);
  f.flag("expert_weights_norm", c.norm_topk, normalises_otherwise);
  f.number("expert_weights_scale", c.routed_scale, 1);
}

void gguf_shared_width_field(GgufFields& f, ModelConfig& c, int64_t absent) {
  constexpr const char* kKey = "expert_shared_feed_forward_length";
  int64_t width = c.shared_experts * c.expert_ffn;
  f.size(kKey, width, absent);
  if (c.expert_ffn <= 0 || width % c.expert_ffn != 0)
    f.refuse(kKey, "it must be a multiple of expert_feed_forward_length");
  c.shared_experts = width / c.expert_ffn;
}

void gguf_state_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kValues = "ssm.inner_size";
  f.size("ssm.conv_kernel", c.state_conv);
  f.size("ssm.state_size", c.state_key_dim);
  f.size("ssm.group_count", c.state_key_heads);
  f.size("ssm.time_step_rank", c.state_heads);
  int64_t values = c.state_heads * c.state_value_dim;
  f.size(kValues, values);
  if (c.state_heads <= 0 || values % c.state_heads != 0)
    f.refuse(kValues, "it must be a multiple of ssm.time_step_rank");
  c.state_value_dim = values / c.state_heads;
}

std::vector<std::vector<int64_t>> gguf_fields_by_layer(GgufFields& f, ModelConfig& c,
                                                       std::span<const char* const> keys,
                                                       void (*fields_of_one)(GgufFields&, ModelConfig&)) {
  if (!f.is_reading()) {
    fields_of_one(f, c);
    return {};
  }
  std::vector<std::vector<int64_t>> lists;
  GgufDescription plain = f.from();
  for (const char* key : keys) {
    const auto told = f.from().keys.find(key);
    const auto* list = told == f.from().keys.end() ? nullptr : std::get_if<std::vector<int64_t>>(&told->second);
    if (!list || list->empty()) f.refuse(key, "it must be a list of a number for each layer");
    const int64_t largest = std::ranges::max(*list);
    for (const int64_t size : *list)
      if (size != 0 && size != largest) f.refuse(key, "layers that have any must have the same number");
    plain.keys[key] = largest;
    lists.push_back(*list);
  }
  const GgufDescription& of_one = plain;
  GgufFields fields(of_one);
  fields_of_one(fields, c);
  for (size_t i = 0; i < lists.size(); ++i)
    if (int64_t(lists[i].size()) != c.layers) f.refuse(keys[i], "it must tell every layer");
  return lists;
}

void gguf_attending_layers_fields(GgufFields& f, ModelConfig& c, void (*fields_of_one)(GgufFields&, ModelConfig&)) {
  constexpr const char* kKeys[] = {"attention.head_count_kv"};
  const auto told = gguf_fields_by_layer(f, c, kKeys, fields_of_one);
  if (f.is_reading()) {
    std::vector<bool> attends;
    for (const int64_t size : told[0]) attends.push_back(size != 0);
    set_attending_layers(c, attends);
    return;
  }
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < c.layers; ++i) sizes.push_back(c.is_recurrent(i) ? 0 : c.kv_heads);
  f.set(kKeys[0], std::move(sizes));
}

void gguf_further_layers_field(GgufFields& f, ModelConfig& c) {
  constexpr const char* kKey = "nextn_predict_layers";
  if (!f.is_reading()) {
    if (c.mtp_layers > 0) f.set(kKey, c.mtp_layers), f.set("block_count", c.layers + c.mtp_layers);
    return;
  }
  int64_t further = 0;
  f.size(kKey, further, 0);
  if (further >= c.layers) f.refuse(kKey, "there must be more blocks than that");
  c.layers -= further, c.mtp_layers = std::min<int64_t>(further, 1);
}

}  // namespace weft
