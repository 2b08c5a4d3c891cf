// without_cudnn: the cuda table with kernels of its own alone, to measure and compare with.
#pragma once
#include "weft/kernels/kernels.h"

namespace weft {

// Throws as cuda_kernels does.
const Kernels& cuda_kernels_without_cudnn();

}  // namespace weft
