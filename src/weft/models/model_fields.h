// The keys of a ModelConfig, once for everything that reads or writes them: recipes and a checkpoint's model.json.
#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "weft/models/model_config.h"

namespace weft {

inline constexpr std::string_view kNormNames[] = {"rmsnorm", "layernorm"};
inline constexpr std::string_view kPositionNames[] = {"rope", "learned"};
inline constexpr std::string_view kStateRuleNames[] = {"delta", "mamba2", "conv", "kda"};
inline constexpr std::string_view kStateNormNames[] = {"gated", "before_gate", "none"};
inline constexpr std::string_view kRouterNames[] = {"softmax", "sigmoid"};
inline constexpr std::string_view kBlockNames[] = {"pre",     "post",  "both", "parallel", "parallel_shared",
                                                   "of_sums", "single"};
inline constexpr std::string_view kRopeScalingNames[] = {"none", "linear",   "dynamic",     "llama3",
                                                         "yarn", "longrope", "proportional"};

struct NamedActivation {
  Activation activation;
  bool is_gated;
  bool is_xielu = false;
};
inline constexpr std::string_view kActivationNames[] = {
    "swiglu", "geglu",     "geglu_exact", "geglu_quick", "reglu", "reglu2", "swiglu_oai", "swiglu_clipped",
    "gelu",   "gelu_tanh", "gelu_quick",  "relu",        "relu2", "silu",   "xielu"};
// Those that config.json can say of both kinds of MLPs, those that hold values within limits, and one with numbers of
// its own.
inline constexpr NamedActivation kActivations[] = {
    {Activation::silu, true},          {Activation::gelu_tanh, true},      {Activation::gelu, true},
    {Activation::gelu_quick, true},    {Activation::relu, true},           {Activation::relu_squared, true},
    {Activation::swiglu_oai, true},    {Activation::swiglu_clipped, true}, {Activation::gelu, false},
    {Activation::gelu_tanh, false},    {Activation::gelu_quick, false},    {Activation::relu, false},
    {Activation::relu_squared, false}, {Activation::silu, false},          {Activation::identity, false, true}};
static_assert(std::size(kActivationNames) == std::size(kActivations));
inline void set_activation(ModelConfig& c, const NamedActivation& a) {
  c.activation = a.activation, c.is_gated = a.is_gated, c.is_xielu = a.is_xielu;
}

// -1, which no layer has, of what is no whole number or too large for one.
inline int64_t layer_number(double x) { return x >= 0 && x < 1e9 && x == double(int64_t(x)) ? int64_t(x) : -1; }

// Calls for each key one of
//   visitor.number(key, int64_t& or float& or double&)
//   visitor.flag(key, bool&)
//   visitor.choice(key, names, index)      an int& into names
//   visitor.list(key, std::vector<double>&)
// and, around keys that count only while another is not 0 (or the first of its choices),
//   visitor.begin_group(key of that one, is_on) and visitor.end_group().
// Dropout and initial values are no keys here: they belong to a training run.
template <class Visitor>
class ModelFields {
 public:
  ModelFields(Visitor& visitor, ModelConfig& config) : v(visitor), c(config) {}

  void visit() {
    shape();
    v.flag("tie_embeddings", c.tie_embeddings), v.flag("embedding_norm", c.embedding_norm);
    v.flag("head_bias", c.head_bias), v.number("labels", c.labels);
    v.flag("bidirectional", c.bidirectional);
    v.begin_group("bidirectional", c.bidirectional);
    v.flag("has_head", c.has_head);
    v.end_group();
    v.flag("bias", c.bias), v.flag("qkv_bias", c.qkv_bias), v.flag("output_bias", c.output_bias);
    v.flag("mlp_bias", c.mlp_bias), v.flag("norm_bias", c.norm_bias);
    choice("block", kBlockNames, c.block);
    v.begin_group("block", c.block == BlockKind::single);
    layers("mlp_layers", c.mlp_layers);
    v.end_group();
    choice("norm", kNormNames, c.norm);
    v.number("norm_eps", c.norm_eps);
    v.flag("norm_weight", c.norm_weight), v.flag("norm_offset", c.norm_offset);
    activation();
    choice("position", kPositionNames, c.position);
    v.number("rope_theta", c.rope_theta), v.number("rotary_dim", c.rotary_dim);
    v.number("unrotated_every", c.unrotated_every);
    layers("unrotated_layers", c.unrotated_layers);
    v.begin_group("unrotated_every", c.has_unrotated());
    v.number("unrotated_query_beta", c.unrotated_query_beta);
    v.number("unrotated_query_interval", c.unrotated_query_interval);
    v.end_group();
    rope_scaling();
    attention();
    experts();
    v.number("mtp_layers", c.mtp_layers);
    v.begin_group("mtp_layers", c.mtp_layers > 0);
    v.number("mtp_loss", c.mtp_loss);
    v.end_group();
  }

 private:
  template <class E>
  void choice(const char* key, std::span<const std::string_view> names, E& value) {
    int index = int(value);
    v.choice(key, names, index);
    value = E(index);
  }

  void layers(const char* key, std::vector<int64_t>& numbers) {
    std::vector<double> told(numbers.begin(), numbers.end());
    v.list(key, told);
    numbers.clear();
    for (const double number : told) numbers.push_back(layer_number(number));
  }

  void shape() {
    v.number("layers", c.layers), v.number("hidden", c.hidden);
    v.number("heads", c.heads), v.number("kv_heads", c.kv_heads), v.number("head_dim", c.head_dim);
    v.number("ffn", c.ffn), v.number("vocab", c.vocab), v.number("context", c.context);
  }

  void activation() {
    int index = 0;
    for (size_t i = 0; i < std::size(kActivations); ++i)
      if (kActivations[i].activation == c.activation && kActivations[i].is_gated == c.is_gated) index = int(i);
    v.choice("activation", kActivationNames, index);
    set_activation(c, kActivations[index]);
  }

  void rope_scaling() {
    RopeScaling& s = c.rope_scaling;
    choice("rope_scaling", kRopeScalingNames, s.kind);
    v.begin_group("rope_scaling", s.kind != RopeScaling::Kind::none);
    v.number("rope_factor", s.factor), v.number("rope_original_context", s.original_context);
    v.number("rope_low_freq_factor", s.low_freq_factor), v.number("rope_high_freq_factor", s.high_freq_factor);
    v.number("rope_beta_fast", s.beta_fast), v.number("rope_beta_slow", s.beta_slow);
    v.flag("rope_exact_ramp", s.is_ramp_exact);
    v.number("rope_attention_factor", s.attention_factor);
    v.number("rope_mscale", s.mscale), v.number("rope_mscale_all", s.mscale_all);
    v.number("rope_query_beta", s.query_beta), v.number("rope_turned_share", s.turned_share);
    v.list("rope_short_factors", s.short_factors), v.list("rope_long_factors", s.long_factors);
    v.end_group();
  }

  void attention() {
    v.flag("qk_norm", c.qk_norm), v.flag("qk_norm_across", c.qk_norm_across);
    v.flag("qk_norm_turned", c.qk_norm_turned), v.flag("qk_norm_weight", c.qk_norm_weight);
    v.flag("value_norm", c.value_norm);
    v.flag("attention_sinks", c.attention_sinks), v.flag("attention_gate", c.attention_gate);
    v.begin_group("attention_gate", c.attention_gate);
    v.flag("attention_gate_by_head", c.attention_gate_by_head);
    v.end_group();
    v.number("value_dim", c.value_dim);
    v.number("attention_scale", c.attention_scale), v.number("attention_softcap", c.attention_softcap);
    v.number("logit_softcap", c.logit_softcap), v.number("embedding_scale", c.embedding_scale);
    v.number("residual_scale", c.residual_scale), v.number("logit_scale", c.logit_scale);
    v.number("attention_out_scale", c.attention_out_scale), v.number("mlp_out_scale", c.mlp_out_scale);
    v.number("mlp_gate_scale", c.mlp_gate_scale);
    v.flag("layer_scale", c.layer_scale);
    v.number("residual_streams", c.residual_streams);
    v.begin_group("residual_streams", c.has_streams());
    v.number("stream_mix_steps", c.stream_mix_steps);
    v.number("stream_magnitude", c.stream_magnitude), v.number("stream_eps", c.stream_eps);
    v.end_group();
    v.number("window", c.window);
    v.begin_group("window", c.window > 0);
    v.flag("chunked_window", c.chunked_window);
    v.number("first_local_layer", c.first_local_layer), v.number("global_every", c.global_every);
    layers("global_layers", c.global_layers);
    v.number("local_rope_theta", c.local_rope_theta);
    v.number("global_head_dim", c.global_head_dim), v.number("global_kv_heads", c.global_kv_heads);
    v.flag("global_values_are_keys", c.global_values_are_keys), v.flag("global_sinks", c.global_sinks);
    v.end_group();
    v.number("shared_kv_layers", c.shared_kv_layers);
    v.begin_group("shared_kv_layers", c.shared_kv_layers > 0);
    v.number("shared_kv_ffn", c.shared_kv_ffn);
    v.end_group();
    v.number("layer_inputs", c.layer_inputs);
    v.number("kv_rank", c.kv_rank);
    v.begin_group("kv_rank", c.kv_rank > 0);
    v.number("query_rank", c.query_rank);
    v.end_group();
    v.number("index_heads", c.index_heads);
    v.begin_group("index_heads", c.index_heads > 0);
    v.number("index_head_dim", c.index_head_dim), v.number("index_topk", c.index_topk);
    layers("index_layers", c.index_layers);
    v.number("index_norm_eps", c.index_norm_eps);
    v.end_group();
    v.number("attention_every", c.attention_every);
    v.flag("state_beside_attention", c.state_beside_attention);
    v.begin_group("attention_every", c.attention_every > 0 || c.state_beside_attention);
    layers("attention_layers", c.attention_layers);
    choice("state_rule", kStateRuleNames, c.state_rule);
    v.number("state_heads", c.state_heads), v.number("state_key_heads", c.state_key_heads);
    v.number("state_key_dim", c.state_key_dim), v.number("state_value_dim", c.state_value_dim);
    v.number("state_conv", c.state_conv);
    v.flag("state_conv_bias", c.state_conv_bias);
    v.flag("state_pre_norm", c.state_pre_norm);
    v.number("state_beta_scale", c.state_beta_scale);
    choice("state_norm", kStateNormNames, c.state_norm);
    v.number("state_norm_eps", c.state_norm_eps), v.number("state_out_scale", c.state_out_scale);
    v.list("state_input_scales", c.state_input_scales);
    v.end_group();
  }

  void experts() {
    v.number("experts", c.experts);
    v.begin_group("experts", c.experts > 0);
    v.number("experts_per_token", c.experts_per_token), v.number("shared_experts", c.shared_experts);
    v.flag("clips_experts", c.clips_experts), v.flag("shared_gate", c.shared_gate);
    v.number("expert_ffn", c.expert_ffn), v.number("expert_latent_dim", c.expert_latent_dim);
    v.number("first_dense_layers", c.first_dense_layers);
    layers("expert_layers", c.expert_layers);
    choice("router", kRouterNames, c.router);
    v.flag("router_weighs_inputs", c.router_weighs_inputs);
    v.flag("experts_beside_dense", c.experts_beside_dense), v.flag("expert_post_norm", c.expert_post_norm);
    v.flag("router_bias", c.router_bias), v.flag("router_ranks_logits", c.router_ranks_logits);
    v.flag("expert_bias", c.expert_bias);
    v.number("expert_groups", c.expert_groups), v.number("groups_per_token", c.groups_per_token);
    v.flag("norm_topk", c.norm_topk), v.number("routed_scale", c.routed_scale);
    v.number("capacity_factor", c.capacity_factor), v.number("aux_loss", c.aux_loss), v.number("z_loss", c.z_loss);
    v.number("router_bias_rate", c.router_bias_rate);
    v.end_group();
  }

  Visitor& v;
  ModelConfig& c;
};

template <class Visitor>
void visit_model_fields(Visitor& visitor, ModelConfig& config) {
  ModelFields<Visitor>(visitor, config).visit();
}

}  // namespace weft
