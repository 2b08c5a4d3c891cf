// How the memory-bound kernels are cut into chunks; the borders depend on shapes alone, never on the threads.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace weft::cpu {

// What one worker takes at a time: about a quarter of an L2 cache, so that a chunk's outputs are still there when the
// caches write them back, and taking the next chunk costs nothing beside it.
inline constexpr int64_t kChunkBytes = 256 << 10;

// Elements of a chunk that reads and writes `bytes` per element: a multiple of 64, so that no two workers write to
// one cache line.
constexpr int64_t elements_per_chunk(int64_t bytes) { return std::max<int64_t>(kChunkBytes / bytes / 64 * 64, 64); }

constexpr int64_t rows_per_chunk(int64_t bytes_per_row) {
  return std::max<int64_t>(kChunkBytes / std::max<int64_t>(bytes_per_row, 1), 1);
}

// A sum over rows has at most this many partial sums, each of a fixed range of rows, added in their order.
inline constexpr int64_t kMaxPartialSums = 64;

// Where a sum over rows [0, rows) is cut, and where the partial sums lie in scratch: one [cols] row each, padded so
// that no two share a cache line.
struct PartialSums {
  PartialSums(int64_t num_rows, int64_t num_cols)
      : rows(num_rows), cols(num_cols), stride((num_cols + 15) / 16 * 16) {
    constexpr int64_t kMaxFloats = int64_t(1) << 20;  // beyond 4 MiB the partial sums themselves cost memory traffic
    const int64_t most = std::clamp<int64_t>(kMaxFloats / std::max<int64_t>(stride, 1), 1, kMaxPartialSums);
    rows_each = std::max<int64_t>((rows + most - 1) / most, 8);
    count = (rows + rows_each - 1) / rows_each;
  }
  size_t bytes() const { return size_t(count * stride) * sizeof(float); }

  int64_t rows, cols, stride;
  int64_t rows_each, count;
};

}  // namespace weft::cpu
