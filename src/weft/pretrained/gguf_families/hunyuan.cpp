// Hunyuan, whose norms of heads come behind rotary positions, plain and with experts.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_hunyuan {
namespace {

void fields(GgufFields& f, ModelConfig& c) { gguf_biased_fields(f, c); }

void moe_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kShared = "expert_shared_count";
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  fields(f, c);
  gguf_expert_fields(f, c);
  f.size(kShared, c.shared_experts, 1);
  if (c.shared_experts != 1) f.refuse(kShared, "one expert sees all tokens");
  if (!f.is_reading()) f.set("expert_shared_feed_forward_length", c.expert_ffn);
}

}  // namespace
}  // namespace gguf_hunyuan

std::vector<GgufFamily> gguf_hunyuan_families() {
  using namespace gguf_hunyuan;

  return {{"hunyuan-dense", "hunyuan_v1_dense", fields, gguf_halved_names},
          {"hunyuan-moe", "hunyuan_v1_moe", moe_fields, gguf_halved_names}};
}

}  // namespace weft
