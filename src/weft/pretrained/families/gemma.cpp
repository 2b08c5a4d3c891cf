// Gemma as Hugging Face saves it; from 2 on with norms on both sides, which VaultGemma has before its parts alone,
// local layers between global ones, caps; of the fourth generation with wider heads in global layers, and experts
// beside the dense part.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_gemma {
namespace {

// Scores are divided by the root of a number that has a key of its own, which newer versions take whole only.
void score_scale_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kKey = "query_pre_attn_scalar";
  if (!f.is_reading()) c.attention_scale = c.score_scale();
  double divisor = c.attention_scale > 0 ? 1 / (double(c.attention_scale) * double(c.attention_scale)) : 0;
  if (std::abs(divisor - std::round(divisor)) < 1e-4 * divisor) divisor = std::round(divisor);
  f.number(kKey, divisor, 256);
  if (!(divisor > 0)) f.refuse(kKey, "it must be above 0");
  if (!f.is_reading() && divisor == std::round(divisor)) f.to()[kKey] = int64_t(divisor);
  c.attention_scale = float(1 / std::sqrt(divisor));
}

// The activation is what hidden_activation says: the first files had another beside it, which nothing reads.
void common_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("head_dim", c.head_dim, 256);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "hidden_activation", c.activation, "gelu_pytorch_tanh");
  attention_bias_field(f, c);
  c.embedding_scale = float(std::sqrt(double(c.hidden)));
}

void gemma_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  rope_fields(f, c, 10000);
  f.only("use_bidirectional_attention", false);
  if (!f.is_reading()) f.to()["hidden_act"] = f.to()["hidden_activation"];  // the key of later versions
}

void local_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  score_scale_field(f, c);
  f.size("sliding_window", c.window, 4096);
}

void gemma2_fields(HfFields& f, ModelConfig& c) {
  local_fields(f, c);
  rope_fields(f, c, 10000);
  cap_field(f, "attn_logit_softcapping", c.attention_softcap, 50);
  cap_field(f, "final_logit_softcapping", c.logit_softcap, 30);
  if (f.is_reading()) c.global_every = 2;
  layer_types_field(f, c);
}

// Local layers have angles of their own.
void gemma3_rope_fields(HfFields& f, ModelConfig& c) {
  if (rope_fields_by_layer(f, c, 1e6, 10000)) return;
  rope_fields(f, c, 1e6);
  f.number("rope_local_base_freq", c.local_rope_theta, 10000);
}

// Where every token sees all of its text, half of config.json's window lies to each side.
void gemma3_fields(HfFields& f, ModelConfig& c) {
  if (c.bidirectional && c.window > 0) c.window = 2 * reach_of(c.window);
  local_fields(f, c);
  gemma3_rope_fields(f, c);
  cap_field(f, "attn_logit_softcapping", c.attention_softcap, 0);
  cap_field(f, "final_logit_softcapping", c.logit_softcap, 0);
  f.size("sliding_window_pattern", c.global_every, 6);
  f.flag("use_bidirectional_attention", c.bidirectional, false);
  if (f.is_reading() && c.bidirectional) c.window = window_of(c.window / 2);
  layer_types_field(f, c);
}

// Which layers are local, where a file without layer_types means all but every sixth and the last.
void gemma4_layers_field(HfFields& f, ModelConfig& c) {
  constexpr int64_t kEvery = 6;
  if (!f.is_reading() || f.has("layer_types")) return layer_types_field(f, c);
  std::vector<bool> is_local;
  for (int64_t i = 0; i < c.layers; ++i) is_local.push_back((i + 1) % kEvery != 0 && i + 1 < c.layers);
  set_local_layers(c, is_local);
}

// Shapes of layers that see the whole text: the keys of all of them together or, as newer versions write them, those
// of each such layer.
void global_layer_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kByLayer = "per_layer_config", *kDim = "global_head_dim",
                       *kHeads = "num_global_key_value_heads";
  f.flag("attention_k_eq_v", c.global_values_are_keys, false);
  if (!f.is_reading()) {
    int64_t dim = c.global_head_dim ? c.global_head_dim : c.head_dim;
    f.size(kDim, dim);
    int64_t heads = c.global_kv_heads ? c.global_kv_heads : c.kv_heads;
    c.global_values_are_keys ? f.size(kHeads, heads) : void(f.to()[kHeads] = nullptr);
    if (!c.global_values_are_keys && heads != c.kv_heads) f.refuse(kHeads, "attention_k_eq_v must be true");
    return;
  }
  if (!f.has(kByLayer)) {
    f.size(kDim, c.global_head_dim, 512);
    if (c.global_values_are_keys) f.size(kHeads, c.global_kv_heads, c.kv_heads);
    return;
  }
  const JsonView by_layer = f.from().at(kByLayer);
  std::optional<std::array<int64_t, 2>> told;
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string number = std::to_string(i);
    std::array<int64_t, 2> here{c.head_dim, c.kv_heads};
    if (by_layer.has(number)) {
      const JsonView of_layer = by_layer.at(number);
      HfFields fields(of_layer);
      fields.size("head_dim", here[0], here[0]);
      fields.size("num_key_value_heads", here[1], here[1]);
    }
    if (c.is_local(i) ? here != std::array{c.head_dim, c.kv_heads} : here != told.value_or(here))
      f.refuse(kByLayer, "local layers must be as the configuration says, and all others alike");
    if (!c.is_local(i)) told = here;
  }
  if (told) c.global_head_dim = (*told)[0], c.global_kv_heads = (*told)[1];
}

// Of the small models: inputs of layers, and last layers that attend to keys of earlier ones.
void small_model_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kInputs = "hidden_size_per_layer_input", *kVocab = "vocab_size_per_layer_input";
  f.size(kInputs, c.layer_inputs, 256);
  int64_t vocab = c.vocab;
  if (c.layer_inputs > 0 || !f.is_reading()) f.size(kVocab, vocab, 262144);
  if (vocab != c.vocab) f.refuse(kVocab, "it must be vocab_size");
  f.size("num_kv_shared_layers", c.shared_kv_layers, 0);
  bool is_double = c.shared_kv_ffn > 0;
  f.flag("use_double_wide_mlp", is_double, false);
  if (f.is_reading()) c.shared_kv_ffn = is_double ? 2 * c.ffn : 0;
}

void gemma4_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  small_model_fields(f, c);
  if (f.is_reading() && f.from().string_or("use_bidirectional_attention", "vision") != "vision")
    f.refuse("use_bidirectional_attention", "texts are read in one direction");
  f.size("sliding_window", c.window, 512);
  gemma4_layers_field(f, c);
  if (f.is_reading() && !f.has("rope_parameters")) {
    c.rope_theta = 1e6, c.local_rope_theta = 10000;
    c.rope_scaling = {.kind = RopeScaling::Kind::proportional, .turned_share = 0.25};
  } else if (f.is_reading()) {
    c.rope_scaling = {};
    if (!rope_fields_by_layer(f, c, 1e6, 10000)) f.refuse("rope_parameters", "it must tell both kinds of layers");
  } else {
    write_rope_by_layer(f, c, 1e6);
  }
  global_layer_fields(f, c);
  cap_field(f, "final_logit_softcapping", c.logit_softcap, 0);
  bool has_experts = c.experts > 0;
  f.flag("enable_moe_block", has_experts, false);
  c.experts_beside_dense = has_experts;
  if (!has_experts) {
    c.experts = 0;
    return;
  }
  f.size("num_experts", c.experts);
  f.size("top_k_experts", c.experts_per_token);
  f.size("moe_intermediate_size", c.expert_ffn);
}

constexpr NameRow kGemma4[] = {
    {"layers.#.scale", "model.layers.#.layer_scalar"},
    {"layer_inputs", "model.embed_tokens_per_layer"},
    {"layer_inputs.projection", "model.per_layer_model_projection"},
    {"layer_inputs.norm", "model.per_layer_projection_norm"},
    {"layers.#.input.gate", "model.layers.#.per_layer_input_gate"},
    {"layers.#.input.projection", "model.layers.#.per_layer_projection"},
    {"layers.#.input.norm", "model.layers.#.post_per_layer_input_norm"},
    {"layers.#.mlp.post_norm", "model.layers.#.post_feedforward_layernorm_1"},
    {"layers.#.moe.norm", "model.layers.#.pre_feedforward_layernorm_2"},
    {"layers.#.moe.post_norm", "model.layers.#.post_feedforward_layernorm_2"},
    {"layers.#.moe.router", "model.layers.#.router.proj"},
    {"layers.#.moe.router_norm.weight", "model.layers.#.router.scale"},
    {"layers.#.moe.router.factors", "model.layers.#.router.per_expert_scale"},
    {"layers.#.moe.experts.gate.weight", "model.layers.#.experts.gate_up_proj", {.part = Part::gate}},
    {"layers.#.moe.experts.up.weight", "model.layers.#.experts.gate_up_proj", {.part = Part::up}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.experts.down_proj"},
};

constexpr NameRow kNorms[] = {{"layers.#.attention_norm", "model.layers.#.input_layernorm"},
                              {"layers.#.attention_post_norm", "model.layers.#.post_attention_layernorm"},
                              {"layers.#.mlp_norm", "model.layers.#.pre_feedforward_layernorm"},
                              {"layers.#.mlp_post_norm", "model.layers.#.post_feedforward_layernorm"}};

const std::vector<NameRow>& gemma_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), gated_names()});
  return rows;
}
const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), std::span(kNorms), attention_names(), gated_names()});
  return rows;
}
const std::vector<NameRow>& gemma4_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kGemma4), std::span(names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_gemma

std::vector<HfFamily> hf_gemma_families() {
  using namespace hf_gemma;

  return {{.family = "gemma",
           .model_type = "gemma",
           .architecture = "GemmaForCausalLM",
           .fields = gemma_fields,
           .names = gemma_names,
           .base = "model."},
          {.family = "gemma2",
           .model_type = "gemma2",
           .architecture = "Gemma2ForCausalLM",
           .fields = gemma2_fields,
           .names = names,
           .base = "model."},
          {.family = "vaultgemma",
           .model_type = "vaultgemma",
           .architecture = "VaultGemmaForCausalLM",
           .fields = gemma2_fields,
           .names = names,
           .base = "model."},
          {.family = "gemma3",
           .model_type = "gemma3_text",
           .architecture = "Gemma3ForCausalLM",
           .fields = gemma3_fields,
           .names = names,
           .base = "model."},
          {.family = "gemma4",
           .model_type = "gemma4_text",
           .architecture = "Gemma4ForCausalLM",
           .fields = gemma4_fields,
           .names = gemma4_names,
           .base = "model.",
           // Of layers that attend to the keys of others, which published files have too.
           .ignored = {"model.layers.#.self_attn.k_proj.weight", "model.layers.#.self_attn.v_proj.weight",
                       "model.layers.#.self_attn.k_norm.weight"}}};
}

}  // namespace weft
