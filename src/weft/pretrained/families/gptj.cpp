// GPT-J, and Phi-1 and 2, as Hugging Face saves them: one LayerNorm to a layer, whose attention and feed-forward part
// stand side by side, and a head with a bias.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_gptj {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("n_positions", c.context, 2048);
  f.size("n_embd", c.hidden);
  f.size("n_layer", c.layers);
  f.size("n_head", c.heads);
  f.size("n_inner", c.ffn, 0);
  f.size("rotary_dim", c.rotary_dim, 64);
  activation_field(f, "activation_function", c.activation, "gelu_new");
  f.number("layer_norm_epsilon", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  f.only("rotary", true);
  f.only("scale_attn_weights", true);
}

void phi_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.number("layer_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "gelu_new");
  rope_fields(f, c, 10000, "partial_rotary_factor", 0.5);
  f.only("qk_layernorm", false);
}

constexpr NameRow kNames[] = {
    {"embedding", "transformer.wte"},
    {"layers.#.attention_norm", "transformer.h.#.ln_1"},
    {"layers.#.attention.query", "transformer.h.#.attn.q_proj", {.is_paired = true}},
    {"layers.#.attention.key", "transformer.h.#.attn.k_proj", {.is_paired = true}},
    {"layers.#.attention.value", "transformer.h.#.attn.v_proj"},
    {"layers.#.attention.output", "transformer.h.#.attn.out_proj"},
    {"layers.#.mlp.up", "transformer.h.#.mlp.fc_in"},
    {"layers.#.mlp.down", "transformer.h.#.mlp.fc_out"},
    {"final_norm", "transformer.ln_f"},
    {"head", "lm_head"},
};
constexpr NameRow kPhi[] = {
    {"final_norm", "model.final_layernorm"},
    {"layers.#.attention.output", "model.layers.#.self_attn.dense"},
    {"layers.#.mlp.up", "model.layers.#.mlp.fc1"},
    {"layers.#.mlp.down", "model.layers.#.mlp.fc2"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames)});
  return rows;
}
const std::vector<NameRow>& phi_names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({std::span(kPhi), outer_names(), pre_norm_names(), attention_names()});
  return rows;
}

}  // namespace
}  // namespace hf_gptj

std::vector<HfFamily> hf_gptj_families() {
  using namespace hf_gptj;

  return {{.family = "gptj",
           .model_type = "gptj",
           .architecture = "GPTJForCausalLM",
           .fields = fields,
           .names = names,
           .base = "transformer.",
           .ignored = {"transformer.h.#.attn.bias", "transformer.h.#.attn.masked_bias"}},
          {.family = "phi",
           .model_type = "phi",
           .architecture = "PhiForCausalLM",
           .fields = phi_fields,
           .names = phi_names,
           .base = "model."}};
}

}  // namespace weft
