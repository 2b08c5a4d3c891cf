// Nemotron-H and Nemotron 3 as Hugging Face saves them: every layer is one part alone, of Mamba-2, of attention
// without positions, or a feed-forward one, dense or of experts chosen by a sigmoid, which may read latent rows
// (Nemotron 3 Super and Ultra).
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_nemotron_h {
namespace {

// The letters of a pattern, and what lists call the same layers, the newer word first.
struct LayerWord {
  char letter;
  std::string_view word, older;
};
constexpr LayerWord kWords[] = {{'M', "linear_attention", "mamba"},
                                {'*', "full_attention", "attention"},
                                {'-', "mlp", "mlp"},
                                {'E', "moe", "moe"}};
constexpr const char *kPattern = "hybrid_override_pattern", *kList = "layers_block_type";

char letter_of(const ModelConfig& c, int64_t layer) {
  if (c.has_mlp(layer)) return c.has_experts(layer) ? 'E' : '-';
  return c.is_recurrent(layer) ? 'M' : '*';
}

std::string told_pattern(HfFields& f) {
  if (!f.has(kList)) return f.from().at(kPattern).string();
  const JsonView list = f.from().at(kList);
  std::string pattern;
  for (int64_t i = 0; i < list.size(); ++i) {
    const std::string word = list.at(i).string();
    const auto known =
        std::ranges::find_if(kWords, [&](const LayerWord& w) { return w.word == word || w.older == word; });
    if (known == std::end(kWords)) f.refuse(kList, fmt::format("there is no layer called {}", word));
    pattern += known->letter;
  }
  return pattern;
}

void read_layers(HfFields& f, ModelConfig& c) {
  const std::string pattern = told_pattern(f);
  const char* const key = f.has(kList) ? kList : kPattern;
  c.layers = int64_t(pattern.size());
  std::vector<bool> attends;
  int64_t dense = 0;  // layers before the first with experts, if a dense one is among them
  bool has_experts = false;
  c.mlp_layers.clear();
  for (int64_t i = 0; i < c.layers; ++i) {
    const char letter = pattern[size_t(i)];
    if (std::ranges::find(kWords, letter, &LayerWord::letter) == std::end(kWords))
      f.refuse(key, fmt::format("there is no layer '{}'", letter));
    if (letter == '-' && has_experts) f.refuse(key, "dense layers must come before those with experts");
    if (letter == '-' || letter == 'E') c.mlp_layers.push_back(i);
    if (letter == '-') dense = i + 1;
    has_experts |= letter == 'E';
    attends.push_back(letter == '*');
  }
  c.first_dense_layers = has_experts ? dense : 0;
  c.experts = has_experts;  // how many stands elsewhere
  if (!has_experts) c.router = RouterGate::softmax, c.router_bias = false;
  set_attending_layers(c, attends);
}

void layer_fields(HfFields& f, ModelConfig& c) {
  if (f.is_reading()) return read_layers(f, c);
  std::string pattern;
  for (int64_t i = 0; i < c.layers; ++i) pattern += letter_of(c, i);
  f.to()[kPattern] = pattern;
}

void state_fields(HfFields& f, ModelConfig& c) {
  f.size("mamba_num_heads", c.state_heads, 128);
  f.size("mamba_head_dim", c.state_value_dim, 64);
  f.size(f.has("mamba_n_groups") ? "mamba_n_groups" : "n_groups", c.state_key_heads, 8);
  f.size("ssm_state_size", c.state_key_dim, 128);
  f.size(f.has("mamba_d_conv") ? "mamba_d_conv" : "conv_kernel", c.state_conv, 4);
  f.flag(f.has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias", c.state_conv_bias, true);
  f.only("mamba_proj_bias", false);
  f.only("use_bias", false);
  f.only("mamba_hidden_act", "silu");
}

void expert_fields(HfFields& f, ModelConfig& c) {
  f.size("n_routed_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  f.size("moe_intermediate_size", c.expert_ffn, 7688);
  shared_width_field(f, c, "moe_shared_expert_intermediate_size", 7688);
  f.number("routed_scaling_factor", c.routed_scale, 1);
  f.flag("norm_topk_prob", c.norm_topk, true);
  f.size("n_group", c.expert_groups, 1);
  f.size("topk_group", c.groups_per_token, 1);
  constexpr const char* kLatent = "moe_latent_size";
  if (f.is_reading())
    f.size(kLatent, c.expert_latent_dim, 0);
  else
    f.to()[kLatent] = c.expert_latent_dim > 0 ? nlohmann::json(c.expert_latent_dim) : nlohmann::json();
}

void fields(HfFields& f, ModelConfig& c) {
  layer_fields(f, c);
  f.size("vocab_size", c.vocab, 131072);
  f.size("hidden_size", c.hidden, 4096);
  f.size("intermediate_size", c.ffn, 21504);
  if (!f.is_reading()) f.to()["num_hidden_layers"] = c.layers;
  f.size("num_attention_heads", c.heads, 32);
  f.size("num_key_value_heads", c.kv_heads, 8);
  f.size(f.has("attention_head_dim") ? "attention_head_dim" : "head_dim", c.head_dim, 128);
  f.size("max_position_embeddings", c.context, 4096);
  f.number("layer_norm_epsilon", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "mlp_hidden_act", c.activation, "relu2");
  f.only("attention_bias", false);
  f.flag("mlp_bias", c.mlp_bias, false);
  if (c.has_states()) state_fields(f, c);
  if (c.experts > 0) expert_fields(f, c);
}

constexpr Layout of_inputs(Part part) { return {.part = part, .has_gates = true}; }
constexpr Layout of_convolved(Part part) { return {.part = part, .is_convolution = true}; }
constexpr NameRow kNames[] = {
    {"embedding", "backbone.embeddings"},
    {"final_norm", "backbone.norm_f"},
    {"head", "lm_head"},
    {"layers.#.attention_norm", "backbone.layers.#.norm"},
    {"layers.#.mlp_norm", "backbone.layers.#.norm"},
    {"layers.#.attention.query", "backbone.layers.#.mixer.q_proj"},
    {"layers.#.attention.key", "backbone.layers.#.mixer.k_proj"},
    {"layers.#.attention.value", "backbone.layers.#.mixer.v_proj"},
    {"layers.#.attention.output", "backbone.layers.#.mixer.o_proj"},
    {"layers.#.state.gate", "backbone.layers.#.mixer.in_proj", of_inputs(Part::state_gate)},
    {"layers.#.state.value", "backbone.layers.#.mixer.in_proj", of_inputs(Part::state_value)},
    {"layers.#.state.key", "backbone.layers.#.mixer.in_proj", of_inputs(Part::state_key)},
    {"layers.#.state.query", "backbone.layers.#.mixer.in_proj", of_inputs(Part::state_query)},
    {"layers.#.state.decay", "backbone.layers.#.mixer.in_proj", of_inputs(Part::state_decay)},
    {"layers.#.state.value_conv", "backbone.layers.#.mixer.conv1d", of_convolved(Part::state_value)},
    {"layers.#.state.key_conv", "backbone.layers.#.mixer.conv1d", of_convolved(Part::state_key)},
    {"layers.#.state.query_conv", "backbone.layers.#.mixer.conv1d", of_convolved(Part::state_query)},
    {"layers.#.state.rate", "backbone.layers.#.mixer.A_log"},
    {"layers.#.state.shift", "backbone.layers.#.mixer.dt_bias"},
    {"layers.#.state.skip", "backbone.layers.#.mixer.D"},
    {"layers.#.state.norm", "backbone.layers.#.mixer.norm"},
    {"layers.#.state.output", "backbone.layers.#.mixer.out_proj"},
    {"layers.#.mlp.up", "backbone.layers.#.mixer.up_proj"},
    {"layers.#.mlp.down", "backbone.layers.#.mixer.down_proj"},
    {"layers.#.moe.router", "backbone.layers.#.mixer.gate"},
    {"layers.#.moe.router.bias", "backbone.layers.#.mixer.gate.e_score_correction_bias"},
    {"layers.#.moe.latent_down", "backbone.layers.#.mixer.fc1_latent_proj"},
    {"layers.#.moe.latent_up", "backbone.layers.#.mixer.fc2_latent_proj"},
    {"layers.#.moe.experts.up", "backbone.layers.#.mixer.experts.@.up_proj"},
    {"layers.#.moe.experts.down", "backbone.layers.#.mixer.experts.@.down_proj"},
    {"layers.#.moe.shared.up", "backbone.layers.#.mixer.shared_experts.up_proj"},
    {"layers.#.moe.shared.down", "backbone.layers.#.mixer.shared_experts.down_proj"},
};
const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames)});
  return rows;
}

}  // namespace
}  // namespace hf_nemotron_h

std::vector<HfFamily> hf_nemotron_h_families() {
  using namespace hf_nemotron_h;

  return {{.family = "nemotron_h",
           .model_type = "nemotron_h",
           .architecture = "NemotronHForCausalLM",
           .fields = fields,
           .names = names,
           .base = "backbone.",
           .ignored = {"mtp.*"}}};
}

}  // namespace weft
