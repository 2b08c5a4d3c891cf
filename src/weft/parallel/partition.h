// Partition: how the layers of a model are cut over ranks; default-made, they are whole.
#pragma once
#include "weft/parallel/tensor_parallel.h"

namespace weft {

// Groups outlive this; a null group stands for this rank alone.
struct Partition {
  TensorParallel tensor;
  Communicator* experts = nullptr;  // each rank holds an even cut of the experts of a layer
  Communicator* context = nullptr;  // each rank holds other tokens of the same rows of the batch
};

}  // namespace weft
