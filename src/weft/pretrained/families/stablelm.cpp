// StableLM as Hugging Face saves it: LayerNorms, a quarter of each head turns, and perhaps both parts side by side.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_stablelm {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.number("layer_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  activation_field(f, "hidden_act", c.activation, "silu");
  rope_fields(f, c, 10000, "partial_rotary_factor", 0.25);
  f.flag("use_qkv_bias", c.qkv_bias, false);
  f.only("qk_layernorm", false);
  bool is_parallel = c.block == BlockKind::parallel_shared;
  f.flag("use_parallel_residual", is_parallel, false);
  c.block = is_parallel ? BlockKind::parallel_shared : BlockKind::pre;
}

}  // namespace
}  // namespace hf_stablelm

std::vector<HfFamily> hf_stablelm_families() {
  using namespace hf_stablelm;

  return {{.family = "stablelm",
           .model_type = "stablelm",
           .architecture = "StableLmForCausalLM",
           .fields = fields,
           .names = llama_names,
           .base = "model."}};
}

}  // namespace weft
