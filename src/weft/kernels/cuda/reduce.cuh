// Sums and maxima over the threads of a warp and of a block, in an order that depends on the block's size alone.
#pragma once
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

struct Plus {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Over each kLanes neighbouring lanes of a warp, a power of two; all of them get the result.
template <int kLanes, class Op, class T>
__device__ __forceinline__ T lanes_reduce(T x) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) x = Op()(x, __shfl_xor_sync(kAllLanes, x, mask));
  return x;
}
// Every thread of the block gets the result; blocks are of whole warps. Ends with a barrier, so that calls may follow
// each other.
template <class Op, class T>
__device__ __forceinline__ T block_reduce(T x) {
  __shared__ T parts[kWarp];
  x = lanes_reduce<kWarp, Op>(x);
  const int num_warps = int(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  T all = parts[0];
  for (int i = 1; i < num_warps; ++i) all = Op()(all, parts[i]);
  __syncthreads();
  return all;
}

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
  return lanes_reduce<kWarp, Plus>(x);
}
__device__ __forceinline__ float warp_max(float x) { return lanes_reduce<kWarp, Larger>(x); }

template <class T>
__device__ __forceinline__ T block_sum(T x) {
  return block_reduce<Plus>(x);
}
__device__ __forceinline__ float block_max(float x) { return block_reduce<Larger>(x); }

}  // namespace weft::cuda
