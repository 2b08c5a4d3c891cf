// Products with weights in quantised blocks: rows of a rounded once, then columns in panels, one at a time to a
// thread.
#include "weft/kernels/cpu/matmul_blocks.h"

#include <algorithm>
#include <array>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cpu {
namespace {

constexpr int64_t kFewCols = 16;  // of a task with few rows: nobody waits long for the last one

struct Product {
  const MatmulArgs& args;
  const BlockKernels& kernels;
  EpilogueKernel epilogue;
  EpilogueCall call;
  int64_t groups = 0, row_bytes = 0;  // of a rounded row of a
  int64_t first_row = 0, rows = 0;    // of a, that are rounded together
  std::byte* rounded = nullptr;
  bool is_few = false;

  void round(ThreadTeam& team) const {
    const bool is_together = !is_few && math_of(args.blocks_b.type) == BlockMath::codes;
    const RoundCall round{.a = args.a.raw(),
                          .dtype = args.a.dtype(),
                          .b = &args.blocks_b,
                          .groups = groups,
                          .lane_by_lane = !is_few,
                          .together = is_together ? kernels.together : 1};
    const auto some = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t place = i % round.together;
        kernels.round_row(round, first_row + i, int(place), rounded + (i - place) * row_bytes);
      }
    };
    if (is_few)
      some(0, rows, 0);
    else
      team.parallel_for(rows, kMostFewRows, some);
  }

  void multiply_few(int64_t col, int cols, float* tile) const {
    const int64_t passes = ceil_div(rows, kMostFewRows);  // over columns that stay in the caches
    for (int64_t pass = 0; pass < passes; ++pass) {
      const int64_t first = rows * pass / passes, count = rows * (pass + 1) / passes - first;
      kernels.few_rows(args.blocks_b, groups, rounded + first * row_bytes, int(count), col, cols, tile);
      epilogue(call, tile, first, col, int(count), cols);
    }
  }

  void multiply_many(int64_t col, int cols, std::byte* panel, float* tile) const {
    const BlockMatrix& b = args.blocks_b;
    kernels.unpack(b, groups, col, cols, panel);
    const auto* const next = static_cast<const std::byte*>(b.blocks.raw()) + (col + cols) * b.row_bytes();
    const int64_t lines = std::min<int64_t>(b.rows - col - cols, kPanelCols) * b.row_bytes() / 64;
    const int64_t tile_rows = kernels.tile_rows(b.type);
    for (int64_t i = 0, count = 0; i < rows; i += count) {
      count = std::min(tile_rows, rows - i);
      const int64_t first = lines * i / rows, end = lines * (i + count) / rows;
      kernels.many_rows(b.type, groups, panel, rounded + i * row_bytes, int(count), tile,
                        {next + first * 64, end - first});
      epilogue(call, tile, first_row + i, col, int(count), cols);
    }
    amx::release();
  }
};

}  // namespace

void matmul_blocks_with(Stream& stream, const MatmulArgs& args, BlockIsa isa) {
  shapes::check_matmul(args);
  const int64_t m = args.y.dim(0), n = args.y.dim(1);
  const BlockType type = args.blocks_b.type;
  const int64_t groups = ceil_div(args.blocks_b.row_blocks() * block_elements(type), kGroupElements);
  Product p{.args = args,
            .kernels = block_kernels(isa),
            .epilogue = matmul_kernels(best_matmul_isa()).epilogue(args.epilogue.kind, args.epilogue.f),
            .call = epilogue_call(args),
            .groups = groups,
            .row_bytes = rounded_row_bytes(type, groups),
            .is_few = m < rows_worth_a_panel(type)};
  if (m == 0 || n == 0) return;
  ThreadTeam& team = stream.team();
  const int64_t tile_bytes = kMaxTileRows * kPanelCols * 4, one_panel = p.is_few ? 0 : panel_bytes(type, groups);
  const int64_t rounded_bytes = round_up(std::min(m, kMostRoundedRows), p.kernels.together) * p.row_bytes;
  for (int i = 0; i < team.size(); ++i)
    stream.scratch(i, size_t(tile_bytes + one_panel + (i == 0 ? rounded_bytes : 0)));
  p.rounded = stream.scratch(0, 0) + tile_bytes + one_panel;
  for (p.first_row = 0; p.first_row < m; p.first_row += p.rows) {
    p.rows = std::min(m - p.first_row, kMostRoundedRows);
    p.round(team);
    const int64_t task_cols = p.is_few ? kFewCols : kPanelCols;
    team.parallel_runs(ceil_div(n, task_cols), 1, [&](int64_t task, int64_t, int worker) {
      const int64_t col = task * task_cols;
      const int cols = int(std::min<int64_t>(task_cols, n - col));
      std::byte* const mine = stream.scratch(worker, 0);
      auto* const tile = reinterpret_cast<float*>(mine);
      if (p.is_few)
        p.multiply_few(col, cols, tile);
      else
        p.multiply_many(col, cols, mine + tile_bytes, tile);
    });
  }
}

}  // namespace weft::cpu
