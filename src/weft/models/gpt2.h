// The GPT-2 family: learned positions, LayerNorm, GELU, biases, tied embeddings.
#pragma once
#include "weft/models/family.h"

namespace weft {

const Family& gpt2_family();

}  // namespace weft
