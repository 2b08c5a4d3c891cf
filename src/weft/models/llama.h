// The Llama family: rotary positions, RMSNorm, SwiGLU, grouped-query attention, no biases; Qwen3 adds qk-norm.
#pragma once
#include "weft/models/family.h"

namespace weft {

const Family& llama_family();

}  // namespace weft
