// EXAONE 4, whose global layers see no positions where others are local; K-EXAONE, the same with experts.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_exaone {
namespace {

void common_fields(GgufFields& f, ModelConfig& c, bool knows_windows) {
  gguf_scaling_fields(f, c, true);
  gguf_window_fields(f, c, 0, 4, knows_windows);
  if (f.is_reading()) c.unrotated_every = c.window > 0 ? c.global_every : 0;
}

void fields(GgufFields& f, ModelConfig& c) {
  constexpr int64_t kLayersOfLocal = 64;
  gguf_rms_fields(f, c);
  common_fields(f, c, c.layers == kLayersOfLocal);
}

void moe_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kShared = "expert_shared_feed_forward_length";
  gguf_rms_fields(f, c);
  gguf_further_layers_field(f, c);
  common_fields(f, c, true);
  gguf_deepseek_expert_fields(f, c, true);
  gguf_router_field(f, c, RouterGate::sigmoid);
  int64_t width = c.shared_experts * c.expert_ffn;
  f.size(kShared, width, width);
  if (width != c.shared_experts * c.expert_ffn) f.refuse(kShared, "shared experts must be as wide as the others");
  if (!f.is_reading() && c.window == 0)
    f.note("llama.cpp reads exaone-moe models with local layers, of which this one has none");
}

}  // namespace
}  // namespace gguf_exaone

std::vector<GgufFamily> gguf_exaone_families() {
  using namespace gguf_exaone;

  return {{"exaone4", "exaone4", fields, gguf_halved_names},
          {"exaone-moe", "exaone_moe", moe_fields, gguf_halved_names}};
}

}  // namespace weft
