// Rows: what the threads that work on one row, a warp or a block, have in hand of it, and their sums.
#pragma once
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/cuda/vectors.cuh"

namespace weft::cuda {

// The threads of a worker of RowsShape.
template <bool kIsWarp>
struct Worker {
  int64_t index, rank, size;  // rank: of this thread among `size`

  __device__ Worker() {
    const int64_t of_block = kIsWarp ? blockDim.x / kWarp : 1;
    size = kIsWarp ? kWarp : int64_t(blockDim.x);
    index = blockIdx.x * of_block + (kIsWarp ? threadIdx.x / kWarp : 0);
    rank = kIsWarp ? threadIdx.x % kWarp : threadIdx.x;
  }
  template <class T>
  __device__ __forceinline__ T sum(T x) const {
    if constexpr (kIsWarp)
      return warp_sum(x);
    else
      return block_sum(x);
  }
  // Two sums for the waiting of one.
  __device__ __forceinline__ void sum_both(float& x, float& y) const {
    x = warp_sum(x), y = warp_sum(y);
    if constexpr (!kIsWarp) {
      __shared__ float parts[2][kWarp];
      if (threadIdx.x % kWarp == 0) parts[0][threadIdx.x / kWarp] = x, parts[1][threadIdx.x / kWarp] = y;
      __syncthreads();
      x = parts[0][0], y = parts[1][0];
      for (int i = 1; i < int(blockDim.x) / kWarp; ++i) x += parts[0][i], y += parts[1][i];
      __syncthreads();
    }
  }
  __device__ __forceinline__ float max(float x) const {
    if constexpr (kIsWarp)
      return warp_max(x);
    else
      return block_max(x);
  }
  // What a thread has written others may read.
  __device__ __forceinline__ void sync() const {
    if constexpr (kIsWarp)
      __syncwarp();
    else
      __syncthreads();
  }
};

// body(c, j) for this thread's part of a row, columns c to c + N. The first kHeld parts have numbers j, so that they
// can be held in registers; in others j is kHeld.
template <int N, int kHeld, bool kIsWarp, class Body>
__device__ __forceinline__ void for_parts(const Worker<kIsWarp>& worker, int64_t cols, Body&& body) {
  const auto held = [&](int j) {
    const int64_t c = (j * worker.size + worker.rank) * N;
    if (c < cols) body(c, j);
  };
  // A fold, because registers cannot be numbered by the variable of a loop that was not unrolled.
  [&]<int... J>(std::integer_sequence<int, J...>) { (held(J), ...); }
  (std::make_integer_sequence<int, kHeld>());
  for (int64_t c = (kHeld * worker.size + worker.rank) * N; c < cols; c += worker.size * N) body(c, kHeld);
}

// work.operator()<N, kIsWarp>(shape): vectors of N elements where rows and tensors lie so, of which a lane of a warp
// takes up to vectors_of_lane.
template <class... T, class Work>
void with_rows(int64_t rows, int64_t cols, bool is_aligned, int64_t most_blocks, Work&& work,
               int64_t vectors_of_lane = 2) {
  constexpr int N = kVector<T...>;
  const bool has_vectors = is_aligned && cols % N == 0;
  const RowsShape shape = has_vectors ? over_long_rows(rows, cols / N, most_blocks, vectors_of_lane)
                                      : over_long_rows(rows, cols, most_blocks);
  if (has_vectors)
    shape.is_warp ? work.template operator()<N, true>(shape) : work.template operator()<N, false>(shape);
  else
    shape.is_warp ? work.template operator()<1, true>(shape) : work.template operator()<1, false>(shape);
}

}  // namespace weft::cuda
