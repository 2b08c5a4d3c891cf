// Families whose norms are LayerNorms with biases, beside GPT-2: OPT, StarCoder, GPT-NeoX, GPT-J, Phi, Falcon and
// others.
#pragma once
#include <vector>

#include "weft/models/family.h"

namespace weft {

const std::vector<Family>& layer_norm_families();

}  // namespace weft
