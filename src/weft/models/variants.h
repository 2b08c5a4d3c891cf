// Families that differ from Llama in the order of norms or in their attention: OLMo, Gemma, DeepSeek, GPT-NeoX,
// Falcon.
#pragma once
#include <vector>

#include "weft/models/family.h"

namespace weft {

const std::vector<Family>& variant_families();

}  // namespace weft
