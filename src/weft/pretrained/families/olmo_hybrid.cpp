// OLMo Hybrid as Hugging Face saves it: layers of the gated delta rule, with norms before their parts, between those
// of OLMo 3 that attend, mostly without positions.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_olmo_hybrid {
namespace {

// null in place of a theta: nothing turns.
void angle_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kParameters = "rope_parameters", *kTheta = "rope_theta";
  if (!f.is_reading()) {
    if (c.unrotated_every != 1) return rope_fields(f, c, 10000);
    f.to()[kParameters] = {{"rope_type", "default"}, {kTheta, nullptr}};
    return;
  }
  const JsonView angles = f.has(kParameters) ? f.from().at(kParameters) : f.from();
  const bool is_null = HfFields(angles).is_null(kTheta);
  c.unrotated_every = is_null ? 1 : 0;
  if (!is_null) rope_fields(f, c, 10000);
}

void state_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kKeyDim = "linear_key_head_dim";
  constexpr float kNormEps = 1e-5f;  // the library's, whatever the others' is
  f.size("linear_num_key_heads", c.state_key_heads, c.heads);
  f.size("linear_num_value_heads", c.state_heads, c.heads);
  if (f.is_reading() && c.state_key_heads <= 0) f.refuse("linear_num_key_heads", "it must be above 0");
  const int64_t otherwise = c.state_key_heads > 0 ? int64_t(0.75 * double(c.hidden) / double(c.state_key_heads)) : 0;
  f.size(kKeyDim, c.state_key_dim, otherwise);
  f.size("linear_value_head_dim", c.state_value_dim, 2 * c.state_key_dim);
  f.size("linear_conv_kernel_dim", c.state_conv, 4);
  bool learns_twice = c.state_beta_scale == 2;
  f.flag("linear_allow_neg_eigval", learns_twice, true);
  c.state_beta_scale = learns_twice ? 2 : 1;
  c.state_norm_eps = kNormEps;
}

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("max_position_embeddings", c.context, 65536);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  f.only("hidden_act", "silu");
  attention_bias_field(f, c);
  angle_fields(f, c);
  constexpr int64_t kEvery = 4;
  if (!attending_layers_field(f, c, "full_attention", "linear_attention")) c.attention_every = kEvery;
  state_fields(f, c);
}

// As in the published files: a layer's two norms have names of its kind.
constexpr NameRow kOwn[] = {
    {"layers.#.attention_norm", "model.layers.#.attention_layer_norm"},
    {"layers.#.mlp_norm", "model.layers.#.feedforward_layer_norm"},
    {"layers.#.state.query", "model.layers.#.linear_attn.q_proj"},
    {"layers.#.state.key", "model.layers.#.linear_attn.k_proj"},
    {"layers.#.state.value", "model.layers.#.linear_attn.v_proj"},
    {"layers.#.state.gate", "model.layers.#.linear_attn.g_proj"},
    {"layers.#.state.decay", "model.layers.#.linear_attn.a_proj"},
    {"layers.#.state.beta", "model.layers.#.linear_attn.b_proj"},
    {"layers.#.state.query_conv", "model.layers.#.linear_attn.q_conv1d", {.is_convolution = true}},
    {"layers.#.state.key_conv", "model.layers.#.linear_attn.k_conv1d", {.is_convolution = true}},
    {"layers.#.state.value_conv", "model.layers.#.linear_attn.v_conv1d", {.is_convolution = true}},
    {"layers.#.state.rate", "model.layers.#.linear_attn.A_log"},
    {"layers.#.state.shift", "model.layers.#.linear_attn.dt_bias"},
    {"layers.#.state.norm", "model.layers.#.linear_attn.o_norm"},
    {"layers.#.state.output", "model.layers.#.linear_attn.o_proj"},
};
const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({std::span(kOwn), outer_names(), post_norm_names(), attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_olmo_hybrid

std::vector<HfFamily> hf_olmo_hybrid_families() {
  using namespace hf_olmo_hybrid;

  return {{.family = "olmo_hybrid",
           .model_type = "olmo_hybrid",
           .architecture = "OlmoHybridForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
