// EXAONE 4 as Hugging Face saves it: norms behind both parts and of heads; the larger model has local layers between
// global ones that know no positions.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_exaone {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.norm_eps = 1e-5});
  rope_fields(f, c, 10000);
  const bool has_window = window_pattern_fields(f, c, "sliding_window_pattern");
  unrotated_global_layers(f, c, has_window);
}

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), post_norm_names(), attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_exaone

std::vector<HfFamily> hf_exaone_families() {
  using namespace hf_exaone;

  return {{.family = "exaone4",
           .model_type = "exaone4",
           .architecture = "Exaone4ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
