// MatmulPlan: block sizes by a small cost model in units of one tile over one panel.
#include "weft/kernels/cpu/matmul_plan.h"

#include <algorithm>

#include "weft/base/ceil_div.h"

namespace weft::cpu {
namespace {

struct BlockSizes {
  int64_t steps;          // of K at once
  int64_t rows;           // of a that share a panel brought to L2
  int64_t whole_a_bytes;  // of L2
  double packing, panel;  // costs, see below
};
// Panel blocks of 64 KiB are streamed from an L2 of 1 MiB.
constexpr BlockSizes kVectors{.steps = 512, .rows = 96, .whole_a_bytes = 400 << 10, .packing = 0.6, .panel = 0.3};
// Tile registers take all that L1 gives, so that a panel block of 16 KiB stays there, and memory cannot bring panels
// as fast as few rows multiply them. Machines that have them have an L2 of 2 MiB.
constexpr BlockSizes kTileRegisters{.steps = 128, .rows = 256, .whole_a_bytes = 1100 << 10, .packing = 2, .panel = 2};

constexpr int64_t kWidePanels = 64;    // per work tile when sums stay in registers or L1
constexpr int64_t kNarrowPanels = 32;  // when they go to L2: 96 x 1024 x 4 bytes

// Packing a row block costs about as much as multiplying it with `packing` panels; bringing a panel as much as
// `panel` tiles.
double cost(const BlockSizes& sizes, int64_t strips, int64_t panels, int64_t strip_block, int64_t panel_block,
            int threads) {
  const int64_t tiles = ceil_div(strips, strip_block) * ceil_div(panels, panel_block);
  return double(ceil_div(tiles, threads)) * (double(strip_block) + sizes.panel) *
         (double(panel_block) + sizes.packing);
}

}  // namespace

MatmulPlan plan_matmul(int64_t m, int64_t n, int64_t steps, DotKind kind, int tile_rows, int threads,
                       int64_t row_block) {
  MatmulPlan plan;
  plan.steps = steps;
  const bool is_tiles = kind == DotKind::bf16_tiles;
  const BlockSizes& sizes = is_tiles ? kTileRegisters : kVectors;
  plan.num_step_blocks = std::max<int64_t>(1, ceil_div(steps, sizes.steps));
  plan.step_block = std::max<int64_t>(1, ceil_div(steps, plan.num_step_blocks));
  if (is_tiles) plan.step_block = packed_words(kind, plan.step_block);
  plan.num_step_blocks = std::max<int64_t>(1, ceil_div(steps, plan.step_block));

  const int64_t strips = ceil_div(m, tile_rows), panels = ceil_div(n, kPanelCols);
  const int64_t most_strips = std::min(strips, sizes.rows / tile_rows);
  const int64_t row_bytes = packed_words(kind, steps) * 4;
  plan.whole_a = most_strips * tile_rows * row_bytes <= sizes.whole_a_bytes || strips == 1;
  const int64_t most_panels = plan.whole_a ? kWidePanels : kNarrowPanels;

  double best = 0;
  int64_t strip_block = 0;
  const int64_t given = row_block / tile_rows, first_strips = given ? given : most_strips;
  const int64_t last_strips = given ? given : std::max<int64_t>(1, most_strips - most_strips / 3);
  for (int64_t s = first_strips; s >= last_strips; --s) {
    const int64_t first = ceil_div(panels, most_panels);
    for (int64_t count = first; count <= std::min(panels, first + 4 * threads); ++count) {
      const int64_t p = ceil_div(panels, count);
      const double c = cost(sizes, strips, panels, s, p, threads);
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
