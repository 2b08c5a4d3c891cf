// CUDA's bf16, as far as weft's kernels use it, by weft's own conversions.
#pragma once
#include "cuda_runtime.h"
#include "weft/tensor/dtype.h"

struct __nv_bfloat16 {
  uint16_t bits = 0;
};
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {weft::BFloat16(x).bits}; }
inline float __bfloat162float(__nv_bfloat16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
