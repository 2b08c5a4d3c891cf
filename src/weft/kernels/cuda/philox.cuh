// Philox4x32-10 in a kernel's hands, number for number that of base/philox.h, and what dropout makes of it.
#pragma once
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

__device__ __forceinline__ uint4 philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint4 c = make_uint4(unsigned(counter_low), unsigned(counter_low >> 32), unsigned(counter_high),
                       unsigned(counter_high >> 32));
  unsigned k0 = unsigned(key), k1 = unsigned(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c.x, p1 = uint64_t(0xCD9E8D57u) * c.z;
    c = make_uint4(unsigned(p1 >> 32) ^ c.y ^ k0, unsigned(p1), unsigned(p0 >> 32) ^ c.w ^ k1, unsigned(p0));
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c;
}

// Uniform in [0, 1), from the top 24 bits.
__device__ __forceinline__ float to_uniform(unsigned bits) { return float(bits >> 8) * 0x1p-24f; }

// What dropout multiplies elements with.
struct DropoutFactors {
  uint64_t seed, stream;
  float p, kept;  // kept: the factor of elements that stay

  static DropoutFactors of(const DropoutKey& key) { return {key.seed, key.stream, key.p, 1 / (1 - key.p)}; }
  __device__ __forceinline__ float at(uint64_t index) const {
    return p == 0 || to_uniform(philox(seed, index, stream).x) >= p ? kept : 0.0f;
  }
};

}  // namespace weft::cuda
