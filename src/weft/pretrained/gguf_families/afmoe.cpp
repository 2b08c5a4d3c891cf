// Arcee's Trinity: every fourth layer is global and turns nothing, which llama.cpp knows.
#include <cmath>

#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_afmoe {
namespace {

void fields(GgufFields& f, ModelConfig& c) {
  constexpr int64_t kGlobalEvery = 4;
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_window_fields(f, c, 0, kGlobalEvery, true);
  if (c.window == 0 || c.global_every != kGlobalEvery || c.first_local_layer > 0)
    f.refuse("attention.sliding_window", "all but every fourth layer must be local");
  gguf_deepseek_expert_fields(f, c, false);
  gguf_router_field(f, c, RouterGate::sigmoid);
  if (!f.is_reading()) return;
  c.unrotated_every = kGlobalEvery;
  c.embedding_scale = std::sqrt(float(c.hidden));
}

constexpr NameRow kGate[] = {{"layers.#.attention.gate", "blk.#.attn_gate"}};
std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kGate), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_afmoe

std::vector<GgufFamily> gguf_afmoe_families() {
  using namespace gguf_afmoe;

  return {{"afmoe", "afmoe", fields, names}};
}

}  // namespace weft
