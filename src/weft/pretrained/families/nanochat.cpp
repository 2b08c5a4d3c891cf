// nanochat as Hugging Face saves it: norms without weights, one of them behind the embedding, and rotary positions
// that turn the other way.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_nanochat {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "relu2");
  attention_bias_field(f, c);
  cap_field(f, "final_logit_softcapping", c.logit_softcap, 15);
  rope_fields(f, c, 10000);
}

constexpr NameRow kNames[] = {
    {"layers.#.attention.query", "model.layers.#.self_attn.q_proj", {.is_swapped = true}},
    {"layers.#.attention.key", "model.layers.#.self_attn.k_proj", {.is_swapped = true}},
    {"layers.#.mlp.up", "model.layers.#.mlp.fc1"},
    {"layers.#.mlp.down", "model.layers.#.mlp.fc2"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames), outer_names(), attention_names()});
  return rows;
}

}  // namespace
}  // namespace hf_nanochat

std::vector<HfFamily> hf_nanochat_families() {
  using namespace hf_nanochat;

  return {{.family = "nanochat",
           .model_type = "nanochat",
           .architecture = "NanoChatForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
