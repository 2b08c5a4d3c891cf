// OLMo, 2 and 3 as one architecture, and OLMoE.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_olmo {
namespace {

void olmo_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps, 1e-5);
  gguf_head_fields(f, c);
  double clamp = 0;
  if (f.is_reading()) f.number("attention.clamp_kqv", clamp, 0);
  if (clamp != 0) f.refuse("attention.clamp_kqv", "clamped queries, keys and values are not read");
}

// The third generation has a window; its local layers are not stretched.
void olmo2_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_window_fields(f, c, 0, 4, true);
  if (f.is_reading() ? c.window > 0 : c.local_rope_theta > 0)
    f.number("rope.freq_base_swa", c.local_rope_theta, c.rope_theta);
}

void olmoe_fields(GgufFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;  // what llama.cpp takes for an expert's width
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_expert_fields(f, c);
}

}  // namespace
}  // namespace gguf_olmo

std::vector<GgufFamily> gguf_olmo_families() {
  using namespace gguf_olmo;

  return {{"olmo", "olmo", olmo_fields, gguf_paired_names},
          {"olmo2", "olmo2", olmo2_fields, gguf_halved_names},
          {"olmoe", "olmoe", olmoe_fields, gguf_halved_names}};
}

}  // namespace weft
