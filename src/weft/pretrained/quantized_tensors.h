// QuantizedTensors: the tensors of a Hugging Face model whose weights are codes, with each weight as one tensor.
#pragma once
#include <memory>

#include "weft/pretrained/hf_quantization.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {

// A weight's codes, scales and zeros become one tensor "NAME.weight" [outputs, inputs]; tensors that are no part of
// one stay what they are. Throws Error naming the tensor that is wrong.
std::unique_ptr<StoredTensors> with_whole_weights(std::unique_ptr<StoredTensors> files, const HfQuantization& how);

}  // namespace weft
