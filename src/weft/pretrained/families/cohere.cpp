// Cohere's Command models as Hugging Face saves them: one norm before both parts, side by side; in the second
// generation local layers between global ones that know no positions.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_cohere {
namespace {

void common_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.number("layer_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "hidden_act", c.activation, "silu");
  attention_bias_field(f, c);
  f.number("logit_scale", c.logit_scale, 0.0625);
}

void cohere_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  rope_fields(f, c, 500000);
  f.only("use_qk_norm", false);
}

void cohere2_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  rope_fields(f, c, 10000);
  window_pattern_fields(f, c, "sliding_window_pattern");
  unrotated_global_layers(f, c, true);
}

constexpr NameRow kNorm[] = {{"layers.#.attention_norm", "model.layers.#.input_layernorm"}};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), std::span(kNorm), paired_attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_cohere

std::vector<HfFamily> hf_cohere_families() {
  using namespace hf_cohere;

  return {{.family = "cohere",
           .model_type = "cohere",
           .architecture = "CohereForCausalLM",
           .fields = cohere_fields,
           .names = names,
           .base = "model."},
          {.family = "cohere2",
           .model_type = "cohere2",
           .architecture = "Cohere2ForCausalLM",
           .fields = cohere2_fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
