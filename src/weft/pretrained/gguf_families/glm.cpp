// GLM-4 of 2025, and GLM-4.5 to 4.7 with experts; dots.llm1.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_glm {
namespace {

// Of GLM-4.1V llama.cpp's converter puts the elements of heads in another order, which nothing but this key tells.
void glm4_fields(GgufFields& f, ModelConfig& c) {
  if (f.has("rope.dimension_sections"))
    f.refuse("rope.dimension_sections", "heads of a model that reads images lie otherwise: name its folder instead");
  gguf_biased_fields(f, c);
}

void glm4_moe_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_further_layers_field(f, c);
  gguf_scaling_fields(f, c);
  if (f.is_reading()) c.qkv_bias = f.from().has_qkv_bias, c.qk_norm = f.from().has_head_norm;
  gguf_deepseek_expert_fields(f, c, true);
  gguf_router_field(f, c, RouterGate::sigmoid);
}

void dots_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_bias_fields(f, c);
  gguf_window_fields(f, c, 0, 0, false);
  gguf_deepseek_expert_fields(f, c, false);
  gguf_router_field(f, c, RouterGate::sigmoid);
}

std::span<const NameRow> glm4_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({gguf_fused_gate(), gguf_paired_names(c)});
  return rows;
}

constexpr NameRow kNorm[] = {{"layers.#.mlp_norm", "blk.#.post_attention_norm"}};
std::span<const NameRow> moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kNorm), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_glm

std::vector<GgufFamily> gguf_glm_families() {
  using namespace gguf_glm;

  return {{"glm4", "glm4", glm4_fields, glm4_names},
          {"glm4moe", "glm4_moe", glm4_moe_fields, moe_names},
          {"dots1", "dots1", dots_fields, gguf_halved_names}};
}

}  // namespace weft
