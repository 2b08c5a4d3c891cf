// Sums and maxima over the threads of a warp and of a block, in an order that depends on the block's size alone.
#pragma once
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += __shfl_xor_sync(kAllLanes, x, mask);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, mask));
  return x;
}

// Every thread of the block gets the result; blocks are of whole warps. Ends with a barrier, so that calls may follow
// each other.
template <class T>
__device__ __forceinline__ T block_sum(T x) {
  __shared__ T parts[kWarp];
  x = warp_sum(x);
  const int num_warps = int(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  T total = parts[0];
  for (int i = 1; i < num_warps; ++i) total += parts[i];
  __syncthreads();
  return total;
}
__device__ __forceinline__ float block_max(float x) {
  __shared__ float parts[kWarp];
  x = warp_max(x);
  const int num_warps = int(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float most = parts[0];
  for (int i = 1; i < num_warps; ++i) most = fmaxf(most, parts[i]);
  __syncthreads();
  return most;
}

}  // namespace weft::cuda
