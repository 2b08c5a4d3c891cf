// MatmulPlan: how a matrix product is cut into blocks for the caches and tiles of work for the threads.
#pragma once
#include <cstdint>

#include "weft/kernels/cpu/matmul_kernels.h"

namespace weft::cpu {

// Work tiles are row_block x col_block of y. K is cut into blocks of `step_block` steps whose sums are added in
// order, so every element of y is summed the same way whatever the number of rows, columns or threads.
struct MatmulPlan {
  int64_t steps = 0, step_block = 1, num_step_blocks = 1;
  int64_t row_block = 0, num_row_blocks = 0;
  int64_t panel_block = 0, num_panel_blocks = 0;
  bool whole_a = true;        // a row block of a stays packed for all of K; else panels are swept once per step block
  int64_t a_block_bytes = 0;  // one step block
  int64_t a_bytes = 0, sums_bytes = 0;
  int64_t row_block_bytes() const { return num_step_blocks * a_block_bytes; }  // packed whole
  int64_t scratch_bytes() const { return a_bytes + sums_bytes + kMaxTileRows * kPanelCols * 4; }
};

// row_block: of a product of the same m and steps, whose packed a this one shares; 0: what suits it best.
MatmulPlan plan_matmul(int64_t m, int64_t n, int64_t steps, DotKind kind, int tile_rows, int threads,
                       int64_t row_block = 0);

}  // namespace weft::cpu
