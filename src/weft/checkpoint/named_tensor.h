// NamedTensor: what checkpoints consist of.
#pragma once
#include <string>

#include "weft/tensor/tensor.h"

namespace weft {

// The tensor's bytes must be on the CPU when it is saved or loaded.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace weft
