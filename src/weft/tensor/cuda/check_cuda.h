// check_cuda: turns an error of the CUDA runtime into an Error that says what was tried.
#pragma once
#include <cuda_runtime.h>

#include "weft/tensor/device_lost.h"

namespace weft {

// After these, every call of the process returns the same error (CUDA runtime API, "Error handling").
constexpr bool is_lasting(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

inline void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) [[likely]]
    return;
  if (is_lasting(status))
    throw DeviceLost("CUDA could not {}: {}; start the program again", what, cudaGetErrorString(status));
  throw Error("CUDA could not {}: {}", what, cudaGetErrorString(status));
}

}  // namespace weft
