// SmolLM3 as Hugging Face saves it: Llama, of whose layers every fourth knows no positions.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_smollm {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.kv_heads = 4, .is_tied = true});
  rope_fields(f, c, 2e6);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  f.only("use_sliding_window", false);
  unrotated_layers_fields(f, c);
}

}  // namespace
}  // namespace hf_smollm

std::vector<HfFamily> hf_smollm_families() {
  using namespace hf_smollm;

  return {{.family = "smollm3",
           .model_type = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .fields = fields,
           .names = llama_names,
           .base = "model."}};
}

}  // namespace weft
