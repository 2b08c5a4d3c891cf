// MatmulPlan: block sizes by a small cost model in units of one tile over one panel.
#include "weft/kernels/cpu/matmul_plan.h"

#include <algorithm>

#include "weft/base/ceil_div.h"

namespace weft::cpu {
namespace {

constexpr int64_t kStepBlock = 512;          // a panel block is 64 KiB, streamed from L2
constexpr int64_t kWholeABytes = 400 << 10;  // of an L2 of 1 MiB
constexpr int64_t kWidePanels = 64;          // per work tile when sums stay in registers or L1
constexpr int64_t kNarrowPanels = 32;        // when they go to L2: 96 x 1024 x 4 bytes

// Packing a row block costs about as much as multiplying it with 0.6 panels; bringing a panel as much as 0.3 tiles.
double cost(int64_t strips, int64_t panels, int64_t strip_block, int64_t panel_block, int threads) {
  const int64_t tiles = ceil_div(strips, strip_block) * ceil_div(panels, panel_block);
  return double(ceil_div(tiles, threads)) * (double(strip_block) + 0.3) * (double(panel_block) + 0.6);
}

}  // namespace

MatmulPlan plan_matmul(int64_t m, int64_t n, int64_t steps, DotKind kind, int tile_rows, int threads) {
  MatmulPlan plan;
  plan.steps = steps;
  plan.num_step_blocks = std::max<int64_t>(1, ceil_div(steps, kStepBlock));
  plan.step_block = std::max<int64_t>(1, ceil_div(steps, plan.num_step_blocks));
  plan.num_step_blocks = std::max<int64_t>(1, ceil_div(steps, plan.step_block));

  const int64_t strips = ceil_div(m, tile_rows), panels = ceil_div(n, kPanelCols);
  const int64_t most_strips = std::min(strips, kMostBlockRows / tile_rows);
  const int64_t row_bytes = packed_words(kind, steps) * 4;
  plan.whole_a = most_strips * tile_rows * row_bytes <= kWholeABytes || strips == 1;
  const int64_t most_panels = plan.whole_a ? kWidePanels : kNarrowPanels;

  double best = 0;
  int64_t strip_block = 0;
  for (int64_t s = most_strips; s >= std::max<int64_t>(1, most_strips - most_strips / 3); --s) {
    const int64_t first = ceil_div(panels, most_panels);
    for (int64_t count = first; count <= std::min(panels, first + 4 * threads); ++count) {
      const int64_t p = ceil_div(panels, count);
      const double c = cost(strips, panels, s, p, threads);
      if (strip_block && c >= best) continue;
      best = c;
      strip_block = s;
      plan.panel_block = p;
    }
  }
  plan.row_block = strip_block * tile_rows;
  plan.num_row_blocks = ceil_div(m, plan.row_block);
  plan.num_panel_blocks = ceil_div(panels, plan.panel_block);

  const int64_t rows = std::min(m, plan.row_block);
  const int64_t words = packed_words(kind, plan.step_block);
  plan.a_block_bytes = round_up((rows * words + (ceil_div(rows, tile_rows) + 1) * kTilePad) * 4, 64);
  plan.a_bytes = round_up(plan.a_block_bytes * (plan.whole_a ? plan.num_step_blocks : 1), 64);
  plan.sums_bytes = plan.num_step_blocks == 1 ? 0 : rows * kPanelCols * 4 * (plan.whole_a ? 1 : plan.panel_block);
  return plan;
}

}  // namespace weft::cpu
