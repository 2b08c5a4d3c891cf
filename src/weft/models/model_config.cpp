// ModelConfig: what of one layer is another's.
#include "weft/models/model_config.h"

#include "weft/base/error.h"
#include "weft/models/model_fields.h"

namespace weft {

int64_t ModelConfig::keys_of(int64_t layer) const {
  if (!shares_keys(layer)) return layer;
  for (int64_t i = layers - shared_kv_layers; i-- > 0;)
    if (is_local(i) == is_local(layer)) return i;
  return -1;
}

bool ModelConfig::gives_keys(int64_t layer) const {
  for (int64_t i = layers - shared_kv_layers; i < layers; ++i)
    if (i != layer && keys_of(i) == layer) return true;
  return false;
}

ModelConfig ModelConfig::mtp_block() const {
  ModelConfig c = *this;
  c.attention_every = c.window = c.unrotated_every = 0;
  c.attention_layers.clear(), c.expert_layers.clear(), c.index_layers.clear();
  c.global_layers.clear(), c.unrotated_layers.clear();
  c.state_beside_attention = c.state_pre_norm = false;
  c.lora = {};
  return c;
}

void set_activation(ModelConfig& config, const std::string& name) {
  const auto found = std::ranges::find(kActivationNames, name);
  if (found == std::end(kActivationNames))
    throw UsageError("model.activation = \"{}\": write one of {}", name, fmt::join(kActivationNames, ", "));
  set_activation(config, kActivations[found - std::begin(kActivationNames)]);
}

}  // namespace weft
