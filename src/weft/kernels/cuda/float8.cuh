// E4M3 in a kernel's hands: floats of codes, and codes of floats.
#pragma once
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

// E4M3 has the bits of a float whose exponent is 120 less; those of small numbers are a small float's too.
__device__ __forceinline__ float float_of_e4m3(unsigned code) {
  const float magnitude = __uint_as_float((code & 0x7f) == 0x7f ? 0x7fc00000u : (code & 0x7f) << 20) * 0x1p120f;
  return code & 0x80 ? -magnitude : magnitude;
}

// To the nearest code, ties to even, of an x that is at most the largest code but for a rounding.
__device__ __forceinline__ uint8_t e4m3_of(float x) {
  const unsigned sign = __float_as_uint(x) >> 24 & 0x80, bits = __float_as_uint(x) & 0x7fffffff;
  // Exponents count from 2^-7 and not from 2^-127; below 2^-6 codes are multiples of 2^-9.
  const float magnitude = fabsf(x);
  if (magnitude < 0x1p-6f) return uint8_t(sign | unsigned(__float2int_rn(magnitude * 0x1p9f)));
  return uint8_t(sign | (((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120 << 3)));
}

}  // namespace weft::cuda
