// The Swiss AI Initiative's Apertus as Hugging Face saves it: Llama with norms of heads, and MLPs without a gate,
// whose activation has two numbers that each layer learns.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_apertus {
namespace {

// Without a word about them angles are stretched.
void angles_fields(HfFields& f, ModelConfig& c) {
  rope_fields(f, c, 1.2e7);
  const bool is_plain = c.rope_scaling.kind == RopeScaling::Kind::none;
  if (!f.is_reading() && is_plain) {
    for (const char* key : {"rope_theta", "rope_scaling"}) f.to().erase(key);
    f.to()["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", c.rope_theta}};
  } else if (f.is_reading() && !f.has("rope_parameters") && !f.has("rope_scaling")) {
    c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8, .original_context = 8192};
  }
}

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("max_position_embeddings", c.context, 65536);
  f.size("head_dim", c.head_dim, 0);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  f.only("hidden_act", "xielu");
  angles_fields(f, c);
  attention_bias_field(f, c);
  if (!f.is_reading()) return;
  // Which published files have, and the library does not know.
  f.only("qk_norm", true), f.only("post_norm", false), f.only("mlp_bias", false);
}

constexpr NameRow kOwn[] = {
    {"layers.#.attention_norm", "model.layers.#.attention_layernorm"},
    {"layers.#.mlp_norm", "model.layers.#.feedforward_layernorm"},
    {"layers.#.mlp.alpha_p", "model.layers.#.mlp.act_fn.alpha_p"},
    {"layers.#.mlp.alpha_n", "model.layers.#.mlp.act_fn.alpha_n"},
};
const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kOwn), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_apertus

std::vector<HfFamily> hf_apertus_families() {
  using namespace hf_apertus;

  // The library takes exp(x) - 1 at eps where x lies between eps and 0: what that changes is left out here.
  HfFamily family = llama_family("apertus", "ApertusForCausalLM", fields, names);
  family.constants = {{"model.layers.#.mlp.act_fn.beta", 0.5f}, {"model.layers.#.mlp.act_fn.eps", -1e-6f}};
  return {family};
}

}  // namespace weft
