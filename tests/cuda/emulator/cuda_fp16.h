// CUDA's half precision, as far as weft's kernels use it, by weft's own conversions.
#pragma once
#include "cuda_runtime.h"
#include "weft/tensor/dtype.h"

struct __half {
  uint16_t bits = 0;
};
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) { return weft::Float16::from_bits(x.bits); }
inline __half __float2half_rn(float x) { return {weft::Float16::to_bits(x)}; }
