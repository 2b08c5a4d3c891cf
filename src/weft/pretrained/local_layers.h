// Which layers see a window only, which turn, which attend at all, and which have experts, told layer by layer.
#pragma once
#include <vector>

#include "weft/models/model_config.h"

namespace weft {

// Says of every layer whether it is local; `config` has a window.
void set_local_layers(ModelConfig& config, const std::vector<bool>& is_local);
// Says of every layer whether its heads turn.
void set_unrotated_layers(ModelConfig& config, const std::vector<bool>& is_rotated);
// Says of every layer whether it attends; the others hand on a state.
void set_attending_layers(ModelConfig& config, const std::vector<bool>& attends);
// Says of every layer whether it has experts.
void set_expert_layers(ModelConfig& config, const std::vector<bool>& has_experts);

}  // namespace weft
