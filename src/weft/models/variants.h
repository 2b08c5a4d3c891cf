// Families that differ from Llama in the order of norms, in their attention or in factors: OLMo, Gemma, DeepSeek, GLM
// and others.
#pragma once
#include <vector>

#include "weft/models/family.h"

namespace weft {

const std::vector<Family>& variant_families();

}  // namespace weft
