// OPT as Hugging Face saves it: learned positions behind two rows that no position has.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_opt {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 2048);
  f.size("hidden_size", c.hidden);
  f.size("ffn_dim", c.ffn);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  activation_field(f, "activation_function", c.activation, "relu");
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  f.only("do_layer_norm_before", true);
  f.only("enable_bias", true);
  f.only("layer_norm_elementwise_affine", true);
  f.only("_remove_final_layer_norm", false);
  f.only("word_embed_proj_dim", c.hidden);
}

constexpr NameRow kNames[] = {
    {"embedding", "model.decoder.embed_tokens"},
    {"position", "model.decoder.embed_positions", {.part = Part::behind_two}},
    {"layers.#.attention_norm", "model.decoder.layers.#.self_attn_layer_norm"},
    {"layers.#.attention.query", "model.decoder.layers.#.self_attn.q_proj"},
    {"layers.#.attention.key", "model.decoder.layers.#.self_attn.k_proj"},
    {"layers.#.attention.value", "model.decoder.layers.#.self_attn.v_proj"},
    {"layers.#.attention.output", "model.decoder.layers.#.self_attn.out_proj"},
    {"layers.#.mlp_norm", "model.decoder.layers.#.final_layer_norm"},
    {"layers.#.mlp.up", "model.decoder.layers.#.fc1"},
    {"layers.#.mlp.down", "model.decoder.layers.#.fc2"},
    {"final_norm", "model.decoder.final_layer_norm"},
    {"head", "lm_head"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames)});
  return rows;
}

}  // namespace
}  // namespace hf_opt

std::vector<HfFamily> hf_opt_families() {
  using namespace hf_opt;

  return {{.family = "opt",
           .model_type = "opt",
           .architecture = "OPTForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
