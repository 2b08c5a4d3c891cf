// The families of Hugging Face models, one file for each kind of decoder.
#pragma once
#include "weft/pretrained/hf_family.h"

namespace weft {

std::span<const HfFamily> hf_llama_families();  // and what came of it: Mistral, Qwen, Mixtral
std::span<const HfFamily> hf_gpt2_families();

}  // namespace weft
