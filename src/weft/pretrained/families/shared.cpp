// What several families share: the keys of shapes, rotary positions and windows, and rows of names.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace {

using Kind = RopeScaling::Kind;
const HfFields::Names<Kind> kScalings{
    {"default", Kind::none},       {"linear", Kind::linear},
    {"dynamic", Kind::dynamic},    {"llama3", Kind::llama3},
    {"yarn", Kind::yarn},          {"longrope", Kind::longrope},
    {"su", Kind::longrope},        {"proportional", Kind::proportional},
    {"deepseek_yarn", Kind::yarn}, {"mrope", Kind::none}};  // three positions to a token, which are one where
                                                            // there is text alone

void original_context(HfFields& f, RopeScaling& s, int64_t otherwise) {
  f.size("original_max_position_embeddings", s.original_context, otherwise);
}

// The keys of rope_scaling beside its kind.
void scaling_fields(HfFields& f, ModelConfig& c) {
  RopeScaling& s = c.rope_scaling;
  const bool is_reading = f.is_reading();
  if (s.kind != Kind::longrope) f.number("factor", s.factor, 1);
  if (s.kind == Kind::llama3) {
    original_context(f, s, c.context);
    f.number("low_freq_factor", s.low_freq_factor, 1);
    f.number("high_freq_factor", s.high_freq_factor, 4);
  }
  if (s.kind == Kind::yarn) {
    original_context(f, s, c.context);
    f.number("beta_fast", s.beta_fast, 32);
    f.number("beta_slow", s.beta_slow, 1);
    bool is_truncated = !s.is_ramp_exact;
    f.flag("truncate", is_truncated, true);
    s.is_ramp_exact = !is_truncated;
    if (is_reading || s.mscale > 0) f.number("mscale", s.mscale, 0);
    if (is_reading || s.mscale_all > 0) f.number("mscale_all_dim", s.mscale_all, 0);
  }
  if (s.kind == Kind::proportional) f.number("partial_rotary_factor", s.turned_share, 1);
  if (s.kind == Kind::longrope) {
    f.numbers("short_factor", s.short_factors);
    f.numbers("long_factor", s.long_factors);
    if (is_reading && f.has("original_max_position_embeddings")) original_context(f, s, 0);
  }
  if (is_reading || s.attention_factor > 0) f.number("attention_factor", s.attention_factor, 0);
  // Beyond the context of its configuration, a dynamically scaled model goes on up to `factor` times that.
  if (s.kind == Kind::dynamic && is_reading) {
    s.original_context = c.context;
    c.context = std::min<int64_t>(int64_t(double(c.context) * s.factor), int64_t(1) << 24);
  }
}

// An object of f, where the kind of scaling stands with its keys.
void read_scaling(HfFields& f, const JsonView& object, ModelConfig& c) {
  HfFields inner(object);
  const char* const key = inner.has("rope_type") ? "rope_type" : "type";
  inner.choice<Kind>(key, c.rope_scaling.kind, kScalings, "default");
  if (c.rope_scaling.kind != Kind::none) scaling_fields(inner, c);
  f.add_keys_of(inner);
}

// A number of an object of f.
template <class T>
void read_inside(HfFields& f, const JsonView& object, const char* key, T& value, double otherwise) {
  HfFields inner(object);
  inner.number(key, value, otherwise);
  f.add_keys_of(inner);
}

void read_rope(HfFields& f, ModelConfig& c, double theta) {
  if (f.has("rope_parameters")) {  // of version 5 on
    const JsonView parameters = f.from().at("rope_parameters");
    read_inside(f, parameters, "rope_theta", c.rope_theta, theta);
    return read_scaling(f, parameters, c);
  }
  f.number("rope_theta", c.rope_theta, theta);
  if (f.has("rope_scaling")) read_scaling(f, f.from().at("rope_scaling"), c);
}

void write_rope(HfFields& f, ModelConfig& c, double theta) {
  f.number("rope_theta", c.rope_theta, theta);
  RopeScaling& s = c.rope_scaling;
  if (s.kind == Kind::none) {
    f.to()["rope_scaling"] = nullptr;
    return;
  }
  nlohmann::json scaling = nlohmann::json::object();
  HfFields inner(scaling);
  inner.choice<Kind>("rope_type", s.kind, kScalings, "default");
  scaling_fields(inner, c);
  f.to()["rope_scaling"] = scaling;
  if (s.kind == Kind::dynamic) f.to()["max_position_embeddings"] = s.original_context;
}

// What write_rope wrote, as newer versions have it.
nlohmann::json taken_rope_parameters(HfFields& f) {
  nlohmann::json& to = f.to();
  nlohmann::json parameters = to["rope_scaling"];
  if (parameters.is_null()) parameters = {{"rope_type", "default"}};
  parameters["rope_theta"] = to["rope_theta"];
  for (const char* key : {"rope_scaling", "rope_theta"}) to.erase(key);
  return parameters;
}

}  // namespace

const char* either(const HfFields& f, const char* key, const char* other) {
  return f.has(other) && !f.has(key) ? other : key;
}

int64_t width_of_head(const ModelConfig& c) {
  return c.head_dim > 0 ? c.head_dim : c.hidden / std::max<int64_t>(c.heads, 1);
}

void common_shape_fields(HfFields& f, ModelConfig& c, int64_t absent_ffn) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 2048);
  f.size("hidden_size", c.hidden);
  absent_ffn > 0 ? f.size("intermediate_size", c.ffn, absent_ffn) : f.size("intermediate_size", c.ffn);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.size("num_key_value_heads", c.kv_heads, c.heads);
}

void llama_shape_fields(HfFields& f, ModelConfig& c, const Absent& absent) {
  common_shape_fields(f, c, absent.ffn);
  if (absent.kv_heads > 0) f.size("num_key_value_heads", c.kv_heads, absent.kv_heads);
  f.size("head_dim", c.head_dim, absent.head_dim);
  f.number("rms_norm_eps", c.norm_eps, absent.norm_eps);
  f.flag("tie_word_embeddings", c.tie_embeddings, absent.is_tied);
  activation_field(f, "hidden_act", c.activation, absent.activation);
}

void attention_bias_field(HfFields& f, ModelConfig& c) {
  f.flag("attention_bias", c.qkv_bias, false);
  c.output_bias = c.qkv_bias;
}

void activation_field(HfFields& f, const char* key, Activation& activation, std::string_view otherwise) {
  f.choice<Activation>(key, activation,
                       {{"silu", Activation::silu},
                        {"swish", Activation::silu},
                        {"gelu", Activation::gelu},
                        {"gelu_pytorch_tanh", Activation::gelu_tanh},
                        {"gelu_new", Activation::gelu_tanh},
                        {"gelu_fast", Activation::gelu_tanh},
                        {"relu", Activation::relu},
                        {"relu2", Activation::relu_squared},
                        {"quick_gelu", Activation::gelu_quick}},
                       otherwise);
}

void rope_fields(HfFields& f, ModelConfig& c, double theta, const char* partial_key, double share) {
  if (!f.is_reading()) {
    write_rope(f, c, theta);
    share = double(c.turned_dim()) / double(c.head_dim);
    if (partial_key) f.number(partial_key, share, share);
    return;
  }
  read_rope(f, c, theta);
  if (!partial_key) return;
  f.number(partial_key, share, share);
  const auto check = [&](const HfFields& from, const char* key) {
    if (!(share > 0 && share <= 1)) from.refuse(key, "it must be above 0 and at most 1");
  };
  check(f, partial_key);
  if (f.has("rope_parameters")) {
    const JsonView parameters = f.from().at("rope_parameters");
    HfFields inner(parameters);
    inner.number("partial_rotary_factor", share, share);
    check(inner, "partial_rotary_factor");
  }
  c.rotary_dim = int64_t(double(width_of_head(c)) * share);
}

void scaled_query_rope_fields(HfFields& f, ModelConfig& c, double theta) {
  constexpr const char *kParameters = "rope_parameters", *kBeta = "llama_4_scaling_beta";
  rope_fields(f, c, theta);
  if (f.is_reading()) {
    if (!f.has(kParameters)) return;
    return read_inside(f, f.from().at(kParameters), kBeta, c.rope_scaling.query_beta, 0);
  }
  nlohmann::json parameters = taken_rope_parameters(f);
  parameters[kBeta] = c.rope_scaling.query_beta;
  f.to()[kParameters] = parameters;
}

void cap_field(HfFields& f, const char* key, float& cap, double otherwise) {
  if (f.is_reading() && f.from().raw().contains(key) && !f.has(key))
    cap = 0;
  else if (f.is_reading() || cap > 0)
    f.number(key, cap, otherwise);
  else
    f.to()[key] = nullptr;
}

bool rope_fields_by_layer(HfFields& f, ModelConfig& c, double theta, double local_theta) {
  if (!f.has("rope_parameters") || !f.from().at("rope_parameters").has("full_attention")) return false;
  const JsonView global = f.from().at("rope_parameters").at("full_attention"),
                 local = f.from().at("rope_parameters").at("sliding_attention");
  read_inside(f, global, "rope_theta", c.rope_theta, theta);
  read_scaling(f, global, c);
  read_inside(f, local, "rope_theta", c.local_rope_theta, local_theta);
  ModelConfig of_local;
  read_scaling(f, local, of_local);
  if (of_local.rope_scaling.kind != RopeScaling::Kind::none)
    f.refuse("rope_parameters", "local layers cannot be scaled");
  return true;
}

void write_rope_by_layer(HfFields& f, ModelConfig& c, double theta) {
  rope_fields(f, c, theta);
  const nlohmann::json global = taken_rope_parameters(f);
  const double local_theta = c.local_rope_theta > 0 ? c.local_rope_theta : c.rope_theta;
  f.to()["rope_parameters"] = {{"full_attention", global},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local_theta}}}};
}

void window_field(HfFields& f, ModelConfig& c, int64_t absent) {
  if (f.is_reading() && !f.has("sliding_window")) {
    c.window = f.is_null("sliding_window") ? 0 : absent;
    return;
  }
  if (f.is_reading() || c.window > 0)
    f.size("sliding_window", c.window);
  else
    f.to()["sliding_window"] = nullptr;
}

std::vector<bool> layers_that_are(const HfFields& f, const ModelConfig& c, const char* key, std::string_view kind,
                                  std::string_view other) {
  const JsonView kinds = f.from().at(key);
  if (kinds.size() != c.layers) f.refuse(key, "it must name every layer");
  std::vector<bool> told;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = kinds.at(i).string();
    if (name != kind && name != other) f.refuse(key, fmt::format("there are {} and {}, not {}", kind, other, name));
    told.push_back(name == kind);
  }
  return told;
}

bool attending_layers_field(HfFields& f, ModelConfig& c, std::string_view attends, std::string_view is_recurrent) {
  constexpr const char* kTypes = "layer_types";
  if (!f.is_reading()) {
    nlohmann::json& types = f.to()[kTypes] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.is_recurrent(i) ? is_recurrent : attends);
    return true;
  }
  if (!f.has(kTypes)) return false;
  set_attending_layers(c, layers_that_are(f, c, kTypes, attends, is_recurrent));
  return true;
}

void layer_types_field(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) {
    nlohmann::json& types = f.to()["layer_types"] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.is_local(i) ? "sliding_attention" : "full_attention");
    return;
  }
  if (!f.has("layer_types") || c.window == 0) return;
  set_local_layers(c, layers_that_are(f, c, "layer_types", "sliding_attention", "full_attention"));
}

void first_of_four_global_fields(HfFields& f, ModelConfig& c, int64_t absent_window) {
  constexpr int64_t kEvery = 4;
  window_field(f, c, absent_window);
  if (!f.is_reading() || f.has("layer_types") || c.window == 0) return layer_types_field(f, c);
  std::vector<bool> is_local;
  for (int64_t i = 0; i < c.layers; ++i) is_local.push_back(i % kEvery != 0);
  set_local_layers(c, is_local);
}

void last_layers_local_fields(HfFields& f, ModelConfig& c, int64_t absent) {
  f.size("max_window_layers", c.first_local_layer, absent);
  layer_types_field(f, c);
  if (c.window == 0 || c.first_local_layer >= c.layers) c.window = c.first_local_layer = 0;
}

bool window_pattern_fields(HfFields& f, ModelConfig& c, const char* pattern_key) {
  constexpr int64_t kWindow = 4096, kEvery = 4;
  window_field(f, c, kWindow);
  const bool has_window = c.window > 0;
  if (f.is_reading()) c.global_every = kEvery;
  const bool has_key = f.is_reading() ? !f.has("layer_types") : c.global_every > 0;
  if (pattern_key && has_key) f.size(pattern_key, c.global_every, kEvery);
  layer_types_field(f, c);
  if (f.is_reading() && c.window == 0) c.global_every = 0;
  return has_window;
}

void unrotated_global_layers(HfFields& f, ModelConfig& c, bool has_window) {
  if (!f.is_reading()) return;
  std::vector<bool> is_rotated;
  for (int64_t i = 0; i < c.layers; ++i) is_rotated.push_back(c.window > 0 ? c.is_local(i) : !has_window);
  set_unrotated_layers(c, is_rotated);
}

void unrotated_layers_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kLayers = "no_rope_layers", *kInterval = "no_rope_layer_interval";
  if (!f.is_reading()) {
    f.to()[kInterval] = c.unrotated_every > 0 ? c.unrotated_every : 4;
    nlohmann::json& layers = f.to()[kLayers] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) layers.push_back(int(c.is_rotated(i)));
    return;
  }
  f.size(kInterval, c.unrotated_every, 4);
  if (!f.has(kLayers) || f.from().at(kLayers).size() == 0) return;
  const JsonView layers = f.from().at(kLayers);
  if (layers.size() != c.layers) f.refuse(kLayers, "it must name every layer");
  std::vector<bool> is_rotated;
  for (int64_t i = 0; i < c.layers; ++i) is_rotated.push_back(layers.at(i).integer(0, 1) != 0);
  set_unrotated_layers(c, is_rotated);
}

void sparse_layers_fields(HfFields& f, ModelConfig& c, int64_t absent) {
  constexpr const char* kTypes = "mlp_layer_types";
  f.size("first_k_dense_replace", c.first_dense_layers, absent);
  if (!f.is_reading()) {
    nlohmann::json& types = f.to()[kTypes] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.has_experts(i) ? "sparse" : "dense");
    return;
  }
  if (!f.has(kTypes)) return;
  set_expert_layers(c, layers_that_are(f, c, kTypes, "sparse", "dense"));
}

void balance_loss_field(HfFields& f, ModelConfig& c, double absent) {
  f.number("router_aux_loss_coef", c.aux_loss, absent);
  bool counts = true;  // never written: with it the library's models give what routers say with every token they make
  if (f.is_reading()) f.flag("output_router_logits", counts, false);
  if (!counts) c.aux_loss = 0;
}

void shared_width_field(HfFields& f, ModelConfig& c, const char* key, int64_t otherwise) {
  int64_t width = c.shared_experts * c.expert_ffn;
  f.size(key, width, otherwise);
  if (c.expert_ffn <= 0 || width % c.expert_ffn != 0) f.refuse(key, "it must be a multiple of moe_intermediate_size");
  c.shared_experts = width / c.expert_ffn;
}

std::span<const NameRow> outer_names() {
  static constexpr NameRow kRows[] = {
      {"embedding", "model.embed_tokens"}, {"final_norm", "model.norm"}, {"head", "lm_head"}};
  return kRows;
}

std::span<const NameRow> pre_norm_names() {
  static constexpr NameRow kRows[] = {{"layers.#.attention_norm", "model.layers.#.input_layernorm"},
                                      {"layers.#.mlp_norm", "model.layers.#.post_attention_layernorm"}};
  return kRows;
}

std::span<const NameRow> post_norm_names() {
  static constexpr NameRow kRows[] = {{"layers.#.attention_post_norm", "model.layers.#.post_attention_layernorm"},
                                      {"layers.#.mlp_post_norm", "model.layers.#.post_feedforward_layernorm"}};
  return kRows;
}

std::span<const NameRow> attention_names() {
  static constexpr NameRow kRows[] = {{"layers.#.attention.query", "model.layers.#.self_attn.q_proj"},
                                      {"layers.#.attention.key", "model.layers.#.self_attn.k_proj"},
                                      {"layers.#.attention.value", "model.layers.#.self_attn.v_proj"},
                                      {"layers.#.attention.output", "model.layers.#.self_attn.o_proj"},
                                      {"layers.#.attention.query_norm", "model.layers.#.self_attn.q_norm"},
                                      {"layers.#.attention.key_norm", "model.layers.#.self_attn.k_norm"}};
  return kRows;
}

std::span<const NameRow> paired_attention_names() {
  static constexpr NameRow kHeads[] = {
      {"layers.#.attention.query", "model.layers.#.self_attn.q_proj", {.is_paired = true}},
      {"layers.#.attention.key", "model.layers.#.self_attn.k_proj", {.is_paired = true}}};
  static const std::vector<NameRow> rows = joined({std::span(kHeads), attention_names()});
  return rows;
}

std::span<const NameRow> gated_names() {
  static constexpr NameRow kRows[] = {{"layers.#.mlp.gate", "model.layers.#.mlp.gate_proj"},
                                      {"layers.#.mlp.up", "model.layers.#.mlp.up_proj"},
                                      {"layers.#.mlp.down", "model.layers.#.mlp.down_proj"}};
  return kRows;
}

std::span<const NameRow> expert_names() {
  static constexpr NameRow kRows[] = {
      {"layers.#.moe.router", "model.layers.#.mlp.gate"},
      {"layers.#.moe.experts.gate", "model.layers.#.mlp.experts.@.gate_proj"},
      {"layers.#.moe.experts.up", "model.layers.#.mlp.experts.@.up_proj"},
      {"layers.#.moe.experts.down", "model.layers.#.mlp.experts.@.down_proj"},
      {"layers.#.moe.shared.gate", "model.layers.#.mlp.shared_experts.gate_proj"},
      {"layers.#.moe.shared.up", "model.layers.#.mlp.shared_experts.up_proj"},
      {"layers.#.moe.shared.down", "model.layers.#.mlp.shared_experts.down_proj"},
  };
  return kRows;
}

const std::vector<NameRow>& llama_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), gated_names(), expert_names()});
  return rows;
}

HfFamily llama_family(std::string_view name, std::string_view architecture, void (*fields)(HfFields&, ModelConfig&),
                      const std::vector<NameRow>& (*names)(const ModelConfig&)) {
  return {.family = name,
          .model_type = name,
          .architecture = architecture,
          .fields = fields,
          .names = names,
          .base = "model.",
          .ignored = {"model.layers.#.self_attn.rotary_emb.inv_freq"}};
}

}  // namespace weft
