// Aleph Alpha's Kolibri as Hugging Face saves it: experts chosen by logits with biases and weighed by a sigmoid,
// beside a shared one, norms on both sides of each part, and local layers between global ones that know no positions.
#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_kolibri {
namespace {

void layers_fields(HfFields& f, ModelConfig& c) {
  constexpr int64_t kEvery = 5;
  window_field(f, c, 513);
  const bool has_window = c.window > 0;
  if (f.is_reading()) c.global_every = has_window ? kEvery : 0;
  layer_types_field(f, c);
  if (f.is_reading() && c.window == 0) c.global_every = 0;
  unrotated_global_layers(f, c, has_window);
}

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 262144);
  f.size("hidden_size", c.hidden);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.size("num_key_value_heads", c.kv_heads, 4);
  f.size("head_dim", c.head_dim, 128);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  rope_fields(f, c, 10000);
  layers_fields(f, c);
  f.size(either(f, "num_local_experts", "num_experts"), c.experts, 384);
  f.size("num_experts_per_tok", c.experts_per_token, 6);
  f.size("moe_intermediate_size", c.expert_ffn, 512);
  shared_width_field(f, c, "shared_expert_intermediate_size", 512);
  f.flag("norm_topk_prob", c.norm_topk, false);
}

constexpr NameRow kOwn[] = {
    {"layers.#.attention_post_norm", "model.layers.#.post_attn_norm"},
    {"layers.#.mlp_post_norm", "model.layers.#.post_ffn_norm"},
    {"layers.#.moe.router.bias", "model.layers.#.moe.router.expert_bias"},
};
const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kOwn), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_kolibri

std::vector<HfFamily> hf_kolibri_families() {
  using namespace hf_kolibri;

  return {llama_family("kolibri1", "Kolibri1ForCausalLM", fields, names)};
}

}  // namespace weft
