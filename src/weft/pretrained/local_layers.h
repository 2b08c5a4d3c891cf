// Which layers see a window only, told layer by layer.
#pragma once
#include <vector>

#include "weft/models/model_config.h"

namespace weft {

// Says of every layer whether it is local; `config` has a window. False when weft has no words for the pattern: the
// layers from one on, or all but every n-th.
bool set_local_layers(ModelConfig& config, const std::vector<bool>& is_local);

}  // namespace weft
