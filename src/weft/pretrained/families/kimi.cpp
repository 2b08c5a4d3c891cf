// Kimi Linear as Hugging Face saves it: the delta rule with a rate to each channel of a key, between layers of latent
// attention that know no positions; and experts as DeepSeek-V3 has them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_kimi {
namespace {

constexpr const char *kLinear = "linear_attn_config", *kAttending = "full_attn_layers", *kRecurrent = "kda_layers";

// What successors of these models have otherwise.
void refuse_variants(HfFields& f) {
  f.only("mla_use_output_gate", false);
  for (const char* key : {"attn_res_block_size", "routed_expert_hidden_size"})
    if (f.has(key)) f.refuse(key, "only null is");
}

// Layers are counted from 1 on, and each is in one of the two lists.
void attending_layers(HfFields& f, ModelConfig& c) {
  if (attending_layers_field(f, c, "full_attention", "linear_attention")) return;
  std::vector<bool> attends(size_t(c.layers));
  const auto layers_in = [&](const char* list) {
    std::set<int64_t> layers;
    const JsonView numbers = f.from().at(kLinear).at(list);
    for (int64_t i = 0; i < numbers.size(); ++i) layers.insert(numbers.at(i).integer(1, c.layers) - 1);
    return layers;
  };
  if (f.has(kLinear) && f.from().at(kLinear).has(kAttending) && f.from().at(kLinear).has(kRecurrent)) {
    const std::set<int64_t> some = layers_in(kAttending), others = layers_in(kRecurrent);
    const bool is_apart = std::ranges::none_of(some, [&](int64_t layer) { return others.contains(layer); });
    if (!is_apart || int64_t(some.size() + others.size()) != c.layers)
      f.refuse(kLinear, "each layer must be in one of full_attn_layers and kda_layers");
    for (const int64_t layer : some) attends[size_t(layer)] = true;
  } else {
    for (int64_t layer = 4; layer < c.layers; layer += 4) attends[size_t(layer)] = true;
  }
  set_attending_layers(c, attends);
}

void read_states(HfFields& f, ModelConfig& c) {
  f.size("linear_num_heads", c.state_heads, 32);
  f.size("linear_head_dim", c.state_key_dim, 128);
  f.size("linear_conv_kernel_dim", c.state_conv, 4);
  if (f.has(kLinear)) {
    const JsonView told = f.from().at(kLinear);
    HfFields inner(told);
    inner.only("use_full_rank_gate", false), inner.only_null("gate_lower_bound");
    inner.size("num_heads", c.state_heads, c.state_heads);
    inner.size("head_dim", c.state_key_dim, c.state_key_dim);
    inner.size("short_conv_kernel_size", c.state_conv, c.state_conv);
    f.add_keys_of(inner);
  }
  c.state_value_dim = c.state_key_dim;
  attending_layers(f, c);
}

void write_states(HfFields& f, ModelConfig& c) {
  if (c.state_key_heads != c.state_heads || c.state_key_dim != c.state_value_dim)
    f.refuse(kLinear, "keys and values of states have as many heads, of one size, in models of this kind");
  attending_layers(f, c);
  nlohmann::json& told = f.to()[kLinear];
  told = {{"num_heads", c.state_heads}, {"head_dim", c.state_key_dim}, {"short_conv_kernel_size", c.state_conv}};
  told[kAttending] = told[kRecurrent] = nlohmann::json::array();
  for (int64_t i = 0; i < c.layers; ++i) told[c.is_recurrent(i) ? kRecurrent : kAttending].push_back(i + 1);
}

void expert_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading() && c.experts == 0) c.first_dense_layers = c.layers;
  f.size("num_experts", c.experts);
  f.size("num_shared_experts", c.shared_experts, 1);
  f.size("num_experts_per_token", c.experts_per_token, 8);
  f.size("moe_intermediate_size", c.expert_ffn, 1024);
  f.number("routed_scaling_factor", c.routed_scale, 2.446);
  f.flag("moe_renormalize", c.norm_topk, true);
  f.size("num_expert_group", c.expert_groups, 1);
  f.size("topk_group", c.groups_per_token, 1);
  f.only("use_grouped_topk", true);
  f.only("moe_router_activation_func", "sigmoid");
  f.only("moe_layer_freq", int64_t(1));
  sparse_layers_fields(f, c, 1);
}

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("model_max_length", c.context, 1048576);
  f.size("hidden_size", c.hidden);
  f.size("intermediate_size", c.ffn);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.size("num_key_value_heads", c.kv_heads, c.heads);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  latent_attention_fields(f, c, 0);
  f.only("mla_use_nope", true);
  if (f.is_reading()) refuse_variants(f);
  f.is_reading() ? read_states(f, c) : write_states(f, c);
  expert_fields(f, c);
}

constexpr NameRow kState[] = {
    {"layers.#.state.query", "model.layers.#.self_attn.q_proj"},
    {"layers.#.state.key", "model.layers.#.self_attn.k_proj"},
    {"layers.#.state.value", "model.layers.#.self_attn.v_proj"},
    {"layers.#.state.query_conv", "model.layers.#.self_attn.q_conv1d", {.is_convolution = true}},
    {"layers.#.state.key_conv", "model.layers.#.self_attn.k_conv1d", {.is_convolution = true}},
    {"layers.#.state.value_conv", "model.layers.#.self_attn.v_conv1d", {.is_convolution = true}},
    {"layers.#.state.gate_down", "model.layers.#.self_attn.g_a_proj"},
    {"layers.#.state.gate", "model.layers.#.self_attn.g_b_proj"},
    {"layers.#.state.decay_down", "model.layers.#.self_attn.f_a_proj"},
    {"layers.#.state.decay", "model.layers.#.self_attn.f_b_proj"},
    {"layers.#.state.beta", "model.layers.#.self_attn.b_proj"},
    {"layers.#.state.rate", "model.layers.#.self_attn.A_log", {.as = VectorAs::third_of_four}},
    {"layers.#.state.shift", "model.layers.#.self_attn.dt_bias"},
    {"layers.#.state.norm", "model.layers.#.self_attn.o_norm"},
    {"layers.#.state.output", "model.layers.#.self_attn.o_proj"},
};
constexpr NameRow kExperts[] = {
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.gate"},
    {"layers.#.moe.router.bias", "model.layers.#.block_sparse_moe.gate.e_score_correction_bias"},
    {"layers.#.moe.experts.gate", "model.layers.#.block_sparse_moe.experts.@.w1"},
    {"layers.#.moe.experts.up", "model.layers.#.block_sparse_moe.experts.@.w3"},
    {"layers.#.moe.experts.down", "model.layers.#.block_sparse_moe.experts.@.w2"},
    {"layers.#.moe.shared.gate", "model.layers.#.block_sparse_moe.shared_experts.gate_proj"},
    {"layers.#.moe.shared.up", "model.layers.#.block_sparse_moe.shared_experts.up_proj"},
    {"layers.#.moe.shared.down", "model.layers.#.block_sparse_moe.shared_experts.down_proj"},
};
// Hugging Face's library saves dense layers so too, of whose files the published ones say mlp.
constexpr NameRow kDenseOfLibrary[] = {
    {"layers.#.mlp.gate", "model.layers.#.block_sparse_moe.gate_proj"},
    {"layers.#.mlp.up", "model.layers.#.block_sparse_moe.up_proj"},
    {"layers.#.mlp.down", "model.layers.#.block_sparse_moe.down_proj"},
};

const std::vector<NameRow>& names(const ModelConfig& c) {
  const auto rows_with = [](int64_t query_rank) {
    return joined({outer_names(), pre_norm_names(), latent_attention_names({.query_rank = query_rank}), kState,
                   gated_names(), kExperts});
  };
  static const std::vector<NameRow> rows = rows_with(1), direct = rows_with(0);
  return c.query_rank > 0 ? rows : direct;
}

}  // namespace
}  // namespace hf_kimi

std::vector<HfFamily> hf_kimi_families() {
  using namespace hf_kimi;

  return {{.family = "kimi_linear",
           .model_type = "kimi_linear",
           .architecture = "KimiLinearForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model.",
           .other_names = kDenseOfLibrary}};
}

}  // namespace weft
