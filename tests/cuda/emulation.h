// What the emulator of CUDA can be told by its environment. A card is told nothing: tests that need it are skipped
// there.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <string>

#include "weft/kernels/cuda/launch.h"

namespace weft {

// num_products: that one of its algorithms made so far. num_pageable_copies: how many copies went through memory that
// is not pinned, and num_waits how often the host waited, where that is counted.
#ifdef WEFT_EMULATED_CUDA
inline constexpr bool kIsEmulated = true;
inline int64_t num_products(int algorithm) { return emulated::num_products(algorithm); }
inline int64_t num_pageable_copies() { return emulated::num_pageable_copies(); }
inline int64_t num_waits() { return emulated::num_waits(); }
#else
inline constexpr bool kIsEmulated = false;
inline int64_t num_products(int) { return 0; }
inline int64_t num_pageable_copies() { return 0; }
inline int64_t num_waits() { return 0; }
#endif

// Whether a test can have a device of a compute capability (90 is 9.0): the emulator plays any.
inline bool has_capability(int capability) { return kIsEmulated || cuda::compute_capability() == capability; }

// Told for as long as this lives.
class EmulatorSetting {
 public:
  EmulatorSetting(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~EmulatorSetting() { unsetenv(name_); }
  EmulatorSetting(const EmulatorSetting&) = delete;
  EmulatorSetting& operator=(const EmulatorSetting&) = delete;

 private:
  const char* name_;
};

// A device of a compute capability.
class EmulatedCapability : EmulatorSetting {
 public:
  explicit EmulatedCapability(int capability)
      : EmulatorSetting("WEFT_EMULATED_CAPABILITY", std::to_string(capability)) {}
};

}  // namespace weft
