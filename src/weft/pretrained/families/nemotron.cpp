// Nemotron and Minitron as Hugging Face saves them: LayerNorms whose weights begin at 0, and MLPs that square what is
// above 0.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_nemotron {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("head_dim", c.head_dim, 0);
  f.number("norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "relu2");
  rope_fields(f, c, 10000, "partial_rotary_factor", 0.5);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
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
           .base = "model."}};
}

}  // namespace weft
