// GPT-2, StarCoder, StarCoder2, StableLM, Nemotron and Jais 2, whose norms are LayerNorms.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_layer_norm {
namespace {

void gpt2_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps);
  gguf_bias_fields(f, c);
  if (f.is_reading()) c.norm_bias = true;
}

void starcoder2_fields(GgufFields& f, ModelConfig& c) {
  gguf_layer_norm_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_window_fields(f, c, 0, 0, false);
  gguf_bias_fields(f, c);
}

void stablelm_fields(GgufFields& f, ModelConfig& c) {
  gguf_layer_norm_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_bias_fields(f, c);
  bool is_parallel = c.block == BlockKind::parallel_shared;
  f.flag("use_parallel_residual", is_parallel, true);
  c.block = is_parallel ? BlockKind::parallel_shared : BlockKind::pre;
}

// And Jais 2.
void nemotron_fields(GgufFields& f, ModelConfig& c) {
  gguf_layer_norm_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_bias_fields(f, c);
}

constexpr NameRow kPosition[] = {{"position", "position_embd"}};
std::span<const NameRow> gpt2_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kPosition), gguf_fused_heads(), gguf_halved_names(c)});
  return rows;
}

std::span<const NameRow> nemotron_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({gguf_offset_norms(), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_layer_norm

std::vector<GgufFamily> gguf_layer_norm_families() {
  using namespace gguf_layer_norm;

  return {{"gpt2", "gpt2", gpt2_fields, gpt2_names},
          {"starcoder", "gpt_bigcode", gpt2_fields, gpt2_names},
          {"starcoder2", "starcoder2", starcoder2_fields, gguf_halved_names},
          {"stablelm", "stablelm", stablelm_fields, gguf_halved_names},
          {"nemotron", "nemotron", nemotron_fields, nemotron_names},
          {"jais2", "jais2", nemotron_fields, gguf_halved_names}};
}

}  // namespace weft
