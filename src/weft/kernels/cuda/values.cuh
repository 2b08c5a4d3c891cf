// Elements in a kernel's hands: 16-bit floats to f32 and back, rounded to nearest even, and where a thread stands.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "weft/kernels/cuda/launch.h"

namespace weft::cuda {

// As nvcc names the types of elements.
template <class T>
struct NativeOf;
template <>
struct NativeOf<float> {
  using Type = float;
};
template <>
struct NativeOf<double> {
  using Type = double;
};
template <>
struct NativeOf<BFloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct NativeOf<Float16> {
  using Type = __half;
};

__device__ __forceinline__ float load(const float* p) { return *p; }
__device__ __forceinline__ float load(const BFloat16* p) { return __uint_as_float(unsigned(p->bits) << 16); }
__device__ __forceinline__ float load(const Float16* p) { return __half2float(__ushort_as_half(p->bits)); }

__device__ __forceinline__ void store(float* p, float x) { *p = x; }
__device__ __forceinline__ void store(BFloat16* p, float x) {
  p->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
__device__ __forceinline__ void store(Float16* p, float x) { p->bits = __half_as_ushort(__float2half_rn(x)); }

// f64 tensors are converted and filled, and nothing else.
__device__ __forceinline__ double load(const double* p) { return *p; }
__device__ __forceinline__ void store(double* p, double x) { *p = x; }

// What storing x in T and reading it again gives.
template <class T>
__device__ __forceinline__ float rounded(float x) {
  T t;
  store(&t, x);
  return load(&t);
}

// Of all threads of the grid, for loops with a stride.
__device__ __forceinline__ int64_t first_element() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t element_stride() { return int64_t(gridDim.x) * blockDim.x; }

}  // namespace weft::cuda
