// GPT-NeoX as Hugging Face saves it: attention beside the feed-forward part, queries, keys and values head by head.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_neox {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 2048);
  f.size("hidden_size", c.hidden);
  f.size("intermediate_size", c.ffn);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.number("layer_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "gelu");
  f.flag("attention_bias", c.qkv_bias, true);
  c.output_bias = c.qkv_bias;
  bool is_parallel = c.block == BlockKind::parallel;
  f.flag("use_parallel_residual", is_parallel, true);
  c.block = is_parallel ? BlockKind::parallel : BlockKind::pre;
  if (f.has("rotary_emb_base") && !f.has("rope_theta")) f.number("rotary_emb_base", c.rope_theta, 10000);
  rope_fields(f, c, c.rope_theta, "rotary_pct");
}

constexpr NameRow kNames[] = {
    {"embedding", "gpt_neox.embed_in"},
    {"layers.#.attention_norm", "gpt_neox.layers.#.input_layernorm"},
    {"layers.#.attention.query",
     "gpt_neox.layers.#.attention.query_key_value",
     {.part = Part::query, .is_grouped = true}},
    {"layers.#.attention.key",
     "gpt_neox.layers.#.attention.query_key_value",
     {.part = Part::key, .is_grouped = true}},
    {"layers.#.attention.value",
     "gpt_neox.layers.#.attention.query_key_value",
     {.part = Part::value, .is_grouped = true}},
    {"layers.#.attention.output", "gpt_neox.layers.#.attention.dense"},
    {"layers.#.mlp_norm", "gpt_neox.layers.#.post_attention_layernorm"},
    {"layers.#.mlp.up", "gpt_neox.layers.#.mlp.dense_h_to_4h"},
    {"layers.#.mlp.down", "gpt_neox.layers.#.mlp.dense_4h_to_h"},
    {"final_norm", "gpt_neox.final_layer_norm"},
    {"head", "embed_out"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames)});
  return rows;
}

}  // namespace
}  // namespace hf_neox

std::vector<HfFamily> hf_neox_families() {
  using namespace hf_neox;

  return {{.family = "gpt_neox",
           .model_type = "gpt_neox",
           .architecture = "GPTNeoXForCausalLM",
           .fields = fields,
           .names = names,
           .base = "gpt_neox.",
           .ignored = {"gpt_neox.layers.#.attention.bias", "gpt_neox.layers.#.attention.masked_bias",
                       "gpt_neox.layers.#.attention.rotary_emb.inv_freq"}}};
}

}  // namespace weft
