// Partition: how the layers of a model are cut over ranks; default-made, they are whole.
#pragma once
#include "weft/parallel/tensor_parallel.h"

namespace weft {

struct Partition {
  TensorParallel tensor;
};

}  // namespace weft
