// EXAONE 4, whose global layers see no positions where others are local.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_exaone {
namespace {

void fields(GgufFields& f, ModelConfig& c) {
  constexpr int64_t kLayersOfLocal = 64;
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c, true);
  gguf_window_fields(f, c, 0, 4, c.layers == kLayersOfLocal);
  if (f.is_reading()) c.unrotated_every = c.window > 0 ? c.global_every : 0;
}

}  // namespace
}  // namespace gguf_exaone

std::vector<GgufFamily> gguf_exaone_families() {
  using namespace gguf_exaone;

  return {{"exaone4", "exaone4", fields, gguf_halved_names}};
}

}  // namespace weft
