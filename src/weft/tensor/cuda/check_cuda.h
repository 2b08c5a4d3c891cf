// check_cuda: turns an error of the CUDA runtime into an Error that says what was tried.
#pragma once
#include <cuda_runtime.h>

#include "weft/base/error.h"

namespace weft {

inline void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error("CUDA could not {}: {}", what, cudaGetErrorString(status));
}

}  // namespace weft
