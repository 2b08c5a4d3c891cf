// How products with weights that are decoded on the way are cut into blocks of threads and pieces of scratch memory.
#pragma once
#include "weft/kernels/cuda/launch_shape.h"

namespace weft::cuda {

// With `vectors` rows of a, a block of threads takes so many columns of y: what is read of a serves all of them.
constexpr int columns_per_block(int vectors) { return vectors <= 2 ? 2 : 4; }

inline constexpr unsigned kMostVectorThreads = 256;

// A thread has about four chunks of a column, so that cards are full of threads where y has few columns.
inline LaunchShape over_columns(int64_t columns, int64_t chunks, int vectors) {
  constexpr int64_t kChunksPerThread = 4;
  const int64_t threads = round_up(ceil_div(chunks, kChunksPerThread), kWarp);
  return {.blocks_x = unsigned(ceil_div(columns, columns_per_block(vectors))),
          .threads = unsigned(std::clamp<int64_t>(threads, kWarp, kMostVectorThreads))};
}

// Of the n columns of y, how many are decoded together: as many as scratch memory has room for, which keeps
// cuBLASLt's tiles many, in steps that keep pieces aligned.
inline int64_t columns_at_once(int64_t n, int64_t k, int64_t element_bytes) {
  constexpr int64_t kMostBytes = int64_t(256) << 20, kStep = 128;
  return std::min(n, std::max(kMostBytes / (k * element_bytes) / kStep, int64_t(1)) * kStep);
}

}  // namespace weft::cuda
