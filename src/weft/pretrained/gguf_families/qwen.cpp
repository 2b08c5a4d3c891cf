// Qwen 2 and 3, the latter also with experts; and what such models are called that read images as well, whose
// positions are those of text where there is nothing else.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_qwen {
namespace {

void qwen_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_window_fields(f, c, 0, 0, false);
}
void qwen2_fields(GgufFields& f, ModelConfig& c) {
  qwen_fields(f, c);
  if (f.is_reading()) c.qkv_bias = f.from().has_qkv_bias;
}
void qwen3_moe_fields(GgufFields& f, ModelConfig& c) {
  qwen_fields(f, c);
  gguf_expert_fields(f, c);
}

// llama.cpp knows that weights of experts do not add up to one here.
void qwen2_moe_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kShared = "expert_shared_feed_forward_length";
  qwen2_fields(f, c);
  gguf_expert_fields(f, c);
  int64_t width = c.shared_experts * c.expert_ffn;
  f.size(kShared, width, c.expert_ffn);
  if (c.expert_ffn <= 0 || width <= 0 || width % c.expert_ffn != 0)
    f.refuse(kShared, "it must be a multiple of expert_feed_forward_length");
  c.shared_experts = width / c.expert_ffn;
}

}  // namespace
}  // namespace gguf_qwen

std::vector<GgufFamily> gguf_qwen_families() {
  using namespace gguf_qwen;

  return {{"qwen2", "qwen2", qwen2_fields, gguf_halved_names},
          {"qwen3", "qwen3", qwen_fields, gguf_halved_names},
          {"qwen3moe", "qwen3_moe", qwen3_moe_fields, gguf_halved_names},
          {"qwen2moe", "qwen2_moe", qwen2_moe_fields, gguf_halved_names},
          {"qwen2vl", "qwen2", qwen2_fields, gguf_halved_names},
          {"qwen3vl", "qwen3", qwen_fields, gguf_halved_names},
          {"qwen3vlmoe", "qwen3_moe", qwen3_moe_fields, gguf_halved_names}};
}

}  // namespace weft
