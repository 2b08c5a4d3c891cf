// Command models: one norm before both parts; in the second generation global layers see no positions.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_cohere {
namespace {

void command_r_fields(GgufFields& f, ModelConfig& c) {
  gguf_layer_norm_fields(f, c);
  gguf_scaling_fields(f, c);
  f.number("logit_scale", c.logit_scale, 0.0625);
}

void cohere2_fields(GgufFields& f, ModelConfig& c) {
  command_r_fields(f, c);
  gguf_window_fields(f, c, 4096, 4, true);
  if (f.is_reading()) c.unrotated_every = c.global_every;
}

}  // namespace
}  // namespace gguf_cohere

std::vector<GgufFamily> gguf_cohere_families() {
  using namespace gguf_cohere;

  return {{"command-r", "cohere", command_r_fields, gguf_paired_names},
          {"cohere2", "cohere2", cohere2_fields, gguf_paired_names}};
}

}  // namespace weft
