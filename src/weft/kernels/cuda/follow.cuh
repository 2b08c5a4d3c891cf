// What kernels do that may begin while the one before them ends (launch_following): programmatic dependent launches.
// The emulator has its own file of this name. Source: PTX ISA 9.0, "griddepcontrol", "cp.async.bulk.prefetch.L2".
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace weft::cuda {

// Every thread's first call but for fetch_ahead(): all kernels before this one on the stream are done, since each of
// them waited here too. The next one may begin.
__device__ __forceinline__ void follow() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// `bytes` from p on, both multiples of 16, come to the L2 cache: a hint, so a kernel before this one may still write
// there.
__device__ __forceinline__ void fetch_ahead(const void* p, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(bytes));
#endif
}

}  // namespace weft::cuda
