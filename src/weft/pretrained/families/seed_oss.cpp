// Seed-OSS as Hugging Face saves it: Llama with biases where it likes.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace {

void seed_oss_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8});
  rope_fields(f, c, 10000);
  f.flag("attention_bias", c.qkv_bias, true);
  f.flag("attention_out_bias", c.output_bias, false);
  f.flag("mlp_bias", c.mlp_bias, false);
}

}  // namespace

std::vector<HfFamily> hf_seed_oss_families() {
  return {llama_family("seed_oss", "SeedOssForCausalLM", seed_oss_fields)};
}

}  // namespace weft
