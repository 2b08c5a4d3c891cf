// OLMo and OLMo 2 as Hugging Face saves them: norms without weights, and norms behind attention and feed-forward
// parts.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_olmo {
namespace {

void common_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  rope_fields(f, c, 10000);
  f.flag("attention_bias", c.qkv_bias, false);
  c.output_bias = c.qkv_bias;
}

void olmo_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.only_null("clip_qkv");
}

void olmo2_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
}

constexpr NameRow kPostNorms[] = {{"layers.#.attention_post_norm", "model.layers.#.post_attention_layernorm"},
                                  {"layers.#.mlp_post_norm", "model.layers.#.post_feedforward_layernorm"}};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), std::span(kPostNorms), attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_olmo

std::vector<HfFamily> hf_olmo_families() {
  using namespace hf_olmo;

  return {{.family = "olmo",
           .model_type = "olmo",
           .architecture = "OlmoForCausalLM",
           .fields = olmo_fields,
           .names = names,
           .base = "model."},
          {.family = "olmo2",
           .model_type = "olmo2",
           .architecture = "Olmo2ForCausalLM",
           .fields = olmo2_fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
