// LaunchShape: how many blocks of how many threads a kernel runs on; plain arithmetic that needs no GPU to be tested.
#pragma once
#include <algorithm>
#include <cstdint>

#include "weft/base/ceil_div.h"

namespace weft::cuda {

inline constexpr int kWarp = 32;

struct LaunchShape {
  unsigned blocks_x = 0, blocks_y = 1, blocks_z = 1;
  unsigned threads = 256;
  uint64_t num_blocks() const { return uint64_t(blocks_x) * blocks_y * blocks_z; }
};

// For loops over `count` elements with a stride of all threads: enough blocks to fill any card, not more than have work.
inline LaunchShape over_elements(int64_t count, int per_thread = 1, unsigned threads = 256) {
  constexpr int64_t kMostBlocks = 4096;
  return {.blocks_x = unsigned(std::min(ceil_div(ceil_div(count, int64_t(per_thread)), int64_t(threads)), kMostBlocks)),
          .threads = threads};
}

// A block to each of `rows` rows of `cols`, of as many threads as the columns keep busy.
inline LaunchShape over_rows(int64_t rows, int64_t cols, unsigned most_threads = 512) {
  const auto wanted = unsigned(round_up(std::max<int64_t>(std::min<int64_t>(cols, most_threads), 1), int64_t(kWarp)));
  return {.blocks_x = unsigned(rows), .threads = wanted};
}

}  // namespace weft::cuda
