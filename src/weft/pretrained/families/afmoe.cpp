// Arcee's Trinity as Hugging Face saves it: gated attention, whose local layers alone turn, norms on both sides of
// each part, and experts chosen by a sigmoid behind dense layers.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_afmoe {
namespace {

void embedding_field(HfFields& f, ModelConfig& c) {
  const float root = std::sqrt(float(c.hidden));
  bool is_scaled = c.embedding_scale == root;
  f.flag("mup_enabled", is_scaled, false);
  c.embedding_scale = is_scaled ? root : 1;
}

void expert_fields(HfFields& f, ModelConfig& c) {
  f.size("num_experts", c.experts, 64);
  f.size("num_experts_per_tok", c.experts_per_token, 6);
  f.size("num_shared_experts", c.shared_experts, 2);
  f.size("moe_intermediate_size", c.expert_ffn, 1408);
  f.size("num_dense_layers", c.first_dense_layers, 1);
  f.number("route_scale", c.routed_scale, 1);
  // Keys of the published files, which the library does not read.
  f.only("route_norm", true);
  f.only("score_func", "sigmoid");
  f.only("n_group", int64_t(1));
  f.only("topk_group", int64_t(1));
}

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .norm_eps = 1e-5});
  f.size("max_position_embeddings", c.context, 16384);
  rope_fields(f, c, 10000);
  f.only("attention_bias", false);
  const bool has_window = window_pattern_fields(f, c, "global_attn_every_n_layers");
  if (f.is_reading() && !has_window) f.refuse("sliding_window", "it must be a number");
  unrotated_global_layers(f, c, has_window);
  embedding_field(f, c);
  expert_fields(f, c);
}

constexpr NameRow kOwn[] = {
    {"layers.#.attention.gate", "model.layers.#.self_attn.gate_proj"},
    {"layers.#.mlp_norm", "model.layers.#.pre_mlp_layernorm"},
    {"layers.#.mlp_post_norm", "model.layers.#.post_mlp_layernorm"},
    {"layers.#.attention_post_norm", "model.layers.#.post_attention_layernorm"},
    {"layers.#.moe.router", "model.layers.#.mlp.router.gate"},
    {"layers.#.moe.router.bias", "model.layers.#.mlp.expert_bias"},
};
const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kOwn), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_afmoe

std::vector<HfFamily> hf_afmoe_families() {
  using namespace hf_afmoe;

  return {llama_family("afmoe", "AfmoeForCausalLM", fields, names)};
}

}  // namespace weft
