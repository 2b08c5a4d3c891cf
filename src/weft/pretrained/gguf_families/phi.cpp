// Phi-2, whose head has a bias, and Phi-3: query, key and value in one tensor, gate and up in one.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_phi {
namespace {

void phi2_fields(GgufFields& f, ModelConfig& c) {
  gguf_layer_norm_fields(f, c);
  gguf_bias_fields(f, c);
  if (!f.is_reading() && !(c.has_qkv_bias() && c.has_output_bias() && c.has_mlp_bias() && c.head_bias))
    f.refuse("block_count", "llama.cpp has biases in all projections of such a model");
  if (f.is_reading()) c.head_bias = f.from().has_head_bias;
}

void phi3_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c, true);
  gguf_window_fields(f, c, 0, 0, false);
}

std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({gguf_fused_heads(), gguf_fused_gate(), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_phi

std::vector<GgufFamily> gguf_phi_families() {
  using namespace gguf_phi;

  return {{"phi2", "phi", phi2_fields, gguf_halved_names}, {"phi3", "phi3", phi3_fields, names}};
}

}  // namespace weft
