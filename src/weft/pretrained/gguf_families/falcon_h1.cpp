// Falcon-H1: attention and Mamba-2 side by side. Files have no factors: weights are multiplied by those of the model
// (pretrained/folded_source.h), as llama.cpp's converter does it.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_falcon_h1 {
namespace {

void fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_state_fields(f, c);
  gguf_bias_fields(f, c);
  c.state_conv_bias = true;
  if (f.is_reading()) c.state_norm = f.from().has_state_norm ? StateNorm::gated : StateNorm::none;
  if (!f.is_reading() && c.has_output_bias())
    f.note("llama.cpp leaves out the bias behind attention in falcon-h1 models");
}

// The norm's name is whole.
constexpr NameRow kNorm[] = {{"layers.#.mlp_norm.weight", "blk.#.ffn_norm"}};
std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kNorm), gguf_mamba_names(), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_falcon_h1

std::vector<GgufFamily> gguf_falcon_h1_families() {
  using namespace gguf_falcon_h1;

  return {{"falcon-h1", "falcon_h1", fields, names}};
}

}  // namespace weft
