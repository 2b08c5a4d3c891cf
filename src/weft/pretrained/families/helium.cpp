// Kyutai's Helium as Hugging Face saves it: Llama whose rotary positions turn neighbours.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_helium {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 20, .norm_eps = 1e-8});
  rope_fields(f, c, 100000);
  f.flag("attention_bias", c.qkv_bias, false);
  f.flag("mlp_bias", c.mlp_bias, false);
  if (c.heads * c.head_dim != c.hidden) f.refuse("head_dim", "all heads must be as wide as the model together");
}

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), paired_attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_helium

std::vector<HfFamily> hf_helium_families() {
  using namespace hf_helium;

  return {llama_family("helium", "HeliumForCausalLM", fields, names)};
}

}  // namespace weft
