// The Llama family and its relatives: rotary positions, RMSNorm, SwiGLU, grouped-query attention.
#pragma once
#include <vector>

#include "weft/models/family.h"

namespace weft {

// Llama itself, then those that differ from it by some fields.
const std::vector<Family>& llama_families();

}  // namespace weft
