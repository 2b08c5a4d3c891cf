// Nemotron and Minitron as Hugging Face saves them: LayerNorms whose weights begin at 0, and MLPs that square what is
// above 0; and Jais 2, whose weights of norms begin at 1.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_nemotron {
namespace {

void common_fields(HfFields& f, ModelConfig& c, const char* eps_key, bool has_biases) {
  common_shape_fields(f, c);
  f.size("head_dim", c.head_dim, 0);
  f.number(eps_key, c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "relu2");
  f.flag("attention_bias", c.qkv_bias, has_biases);
  c.output_bias = c.qkv_bias;
  f.flag("mlp_bias", c.mlp_bias, has_biases);
}

void fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, "norm_eps", false);
  rope_fields(f, c, 10000, "partial_rotary_factor", 0.5);
}

void jais2_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, "layer_norm_eps", true);
  rope_fields(f, c, 10000);
}

}  // namespace
}  // namespace hf_nemotron

std::vector<HfFamily> hf_nemotron_families() {
  using namespace hf_nemotron;

  return {{.family = "nemotron",
           .model_type = "nemotron",
           .architecture = "NemotronForCausalLM",
           .fields = fields,
           .names = llama_names,
           .base = "model."},
          {.family = "jais2",
           .model_type = "jais2",
           .architecture = "Jais2ForCausalLM",
           .fields = jais2_fields,
           .names = llama_names,
           .base = "model."}};
}

}  // namespace weft
