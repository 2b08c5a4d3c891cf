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
  unsigned follows = 0;  // 1: as launch_following() has it
  uint64_t num_blocks() const { return uint64_t(blocks_x) * blocks_y * blocks_z; }
};

// For loops over `count` elements with a stride of all threads: enough blocks to fill any card, not more than have
// work.
inline LaunchShape over_elements(int64_t count, int per_thread = 1, unsigned threads = 256) {
  constexpr int64_t kMostBlocks = 4096;
  return {
      .blocks_x = unsigned(std::min(ceil_div(ceil_div(count, int64_t(per_thread)), int64_t(threads)), kMostBlocks)),
      .threads = threads};
}

// A block to each of `rows` rows of `cols`, of as many threads as the columns keep busy.
inline LaunchShape over_rows(int64_t rows, int64_t cols, unsigned most_threads = 512) {
  const auto wanted = unsigned(round_up(std::max<int64_t>(std::min<int64_t>(cols, most_threads), 1), int64_t(kWarp)));
  return {.blocks_x = unsigned(rows), .threads = wanted};
}

// Rows that are worked on one by one, each by a block or, where that is too short of work, by a warp.
struct RowsShape {
  LaunchShape launch;
  bool is_warp = false;     // a worker is a warp
  int64_t num_workers = 0;  // worker w has rows w, w + num_workers, ...
};

inline constexpr int64_t kAnyNumber = int64_t(1) << 30;  // of blocks

// Of `chunks` to a row, as many as a thread takes in one go; a lane of a warp takes up to `chunks_of_lane`. Not more
// blocks than `most_blocks`.
inline RowsShape over_long_rows(int64_t rows, int64_t chunks, int64_t most_blocks = kAnyNumber,
                                int64_t chunks_of_lane = 2) {
  constexpr int64_t kWarpsOfBlock = 8;
  RowsShape shape;
  shape.is_warp = chunks <= chunks_of_lane * kWarp;
  const int64_t of_block = shape.is_warp ? kWarpsOfBlock : 1;
  const int64_t blocks = std::min(ceil_div(rows, of_block), most_blocks);
  shape.launch = shape.is_warp ? LaunchShape{.threads = unsigned(kWarpsOfBlock * kWarp)} : over_rows(1, chunks);
  shape.launch.blocks_x = unsigned(blocks);
  shape.num_workers = blocks * of_block;
  return shape;
}

// Sums over rows: a block has a tile of columns of a group of rows, and where there are several groups a second pass
// adds up theirs. Depends on the matrix alone, so that sums repeat on any card.
struct ColumnSumShape {
  static constexpr int kRowLanes = 8;  // rows that a block adds side by side
  LaunchShape launch;
  int64_t rows_per_group = 0, num_groups = 0;
};

inline ColumnSumShape over_column_sums(int64_t rows, int64_t cols, int per_thread) {
  constexpr int64_t kBlocks = 1024, kFewestRows = 8 * ColumnSumShape::kRowLanes, kMostGroups = 512;
  const int64_t tiles = ceil_div(cols, int64_t(kWarp) * per_thread);
  const int64_t wanted = std::clamp<int64_t>(kBlocks / std::max<int64_t>(tiles, 1), 1, kMostGroups);
  ColumnSumShape shape;
  shape.rows_per_group = std::max(ceil_div(rows, wanted), kFewestRows);
  shape.num_groups = std::max<int64_t>(ceil_div(rows, shape.rows_per_group), 1);
  shape.launch = {.blocks_x = unsigned(tiles),
                  .blocks_y = unsigned(shape.num_groups),
                  .threads = unsigned(kWarp * ColumnSumShape::kRowLanes)};
  return shape;
}

}  // namespace weft::cuda
