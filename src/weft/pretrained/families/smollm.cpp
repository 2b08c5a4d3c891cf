// SmolLM3 as Hugging Face saves it: Llama, of whose layers every fourth knows no positions.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_smollm {
namespace {

// no_rope_layers says 1 for each layer that turns; without it no_rope_layer_interval says which do not.
void unrotated_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kLayers = "no_rope_layers", *kInterval = "no_rope_layer_interval";
  if (!f.is_reading()) {
    f.to()[kInterval] = c.unrotated_every > 0 ? c.unrotated_every : 4;
    nlohmann::json& layers = f.to()[kLayers] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) layers.push_back(int(c.is_rotated(i)));
    return;
  }
  f.size(kInterval, c.unrotated_every, 4);
  if (!f.has(kLayers)) return;
  const JsonView layers = f.from().at(kLayers);
  if (layers.size() != c.layers) f.refuse(kLayers, "it must name every layer");
  c.unrotated_every = 0;
  for (int64_t i = 0; i < c.layers; ++i) {
    const bool is_rotated = layers.at(i).integer(0, 1) != 0;
    if (!is_rotated && c.unrotated_every == 0) c.unrotated_every = i + 1;
    if (is_rotated != c.is_rotated(i)) f.refuse(kLayers, "weft knows every n-th layer as one without positions");
  }
}

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.kv_heads = 4, .is_tied = true});
  rope_fields(f, c, 2e6);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  f.only("use_sliding_window", false);
  unrotated_fields(f, c);
}

}  // namespace
}  // namespace hf_smollm

std::vector<HfFamily> hf_smollm_families() {
  using namespace hf_smollm;

  return {{.family = "smollm3",
           .model_type = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .fields = fields,
           .names = llama_names,
           .base = "model."}};
}

}  // namespace weft
