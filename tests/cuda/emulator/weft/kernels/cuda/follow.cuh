// The file of this name of the backend, on the CPU: kernels run one after another, and it is held that they call what
// they must.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "weft/base/error.h"

namespace weft::cuda {

inline void follow() { emulated::follow(); }

inline void fetch_ahead(const void* p, uint32_t bytes) {
  check(reinterpret_cast<uintptr_t>(p) % 16 == 0 && bytes % 16 == 0, "what is fetched ahead is units of 16 bytes");
  const auto* const from = static_cast<const volatile std::byte*>(p);
  for (uint32_t at = 0; at < bytes; at += 16) (void)from[at];  // memory that is not a device's shows
}

}  // namespace weft::cuda
