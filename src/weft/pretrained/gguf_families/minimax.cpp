// MiniMax-M2: experts by a sigmoid with biases.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_minimax {
namespace {

void fields(GgufFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_expert_fields(f, c);
  gguf_router_field(f, c, RouterGate::sigmoid);
}

}  // namespace
}  // namespace gguf_minimax

std::vector<GgufFamily> gguf_minimax_families() {
  using namespace gguf_minimax;

  return {{"minimax-m2", "minimax_m2", fields, gguf_halved_names}};
}

}  // namespace weft
