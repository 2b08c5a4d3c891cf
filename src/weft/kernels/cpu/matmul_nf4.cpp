// Packing of an NF4 matrix for products: tiles are decoded in L1, so that the matrix never exists in a wider dtype.
#include <algorithm>

#include "weft/kernels/cpu/matmul_kernels.h"

namespace weft::cpu {
namespace {

constexpr int64_t kSteps = nf4::kBlock;                   // of a tile
constexpr int64_t kMostValues = 2 * kSteps * kPanelCols;  // two to a step in bf16

template <class T>
void narrow(const float* in, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) reinterpret_cast<T*>(out)[i] = T(in[i]);
}

struct Tile {
  alignas(64) float values[kMostValues];
  alignas(64) std::byte narrowed[kMostValues * 2];

  const void* as(DType type, int64_t count) {
    if (type == DType::f32) return values;
    type == DType::bf16 ? narrow<BFloat16>(values, count, narrowed) : narrow<Float16>(values, count, narrowed);
    return narrowed;
  }
};

}  // namespace

void pack_nf4_panels(ThreadTeam& team, const MatmulKernels& kernels, DType type, const nf4::Matrix& b,
                     bool transpose_b, int64_t panel_begin, int64_t panel_end, std::byte* packed) {
  const int64_t k = transpose_b ? b.layout->cols() : b.layout->rows();
  const int64_t n = transpose_b ? b.layout->rows() : b.layout->cols();
  const int64_t per_step = type == DType::bf16 ? 2 : 1, steps = (k + per_step - 1) / per_step;
  const int64_t tiles = (steps + kSteps - 1) / kSteps;
  team.parallel_for((panel_end - panel_begin) * tiles, 4, [&](int64_t first, int64_t last, int) {
    Tile tile;
    for (int64_t task = first; task < last; ++task) {
      const int64_t panel = task / tiles, step = task % tiles * kSteps, num_steps = std::min(kSteps, steps - step);
      const int64_t col = (panel_begin + panel) * kPanelCols, cols = std::min<int64_t>(kPanelCols, n - col);
      const int64_t row = step * per_step, rows = std::min(num_steps * per_step, k - row);
      if (transpose_b)
        b.decode(col, cols, row, rows, tile.values);
      else
        b.decode(row, rows, col, cols, tile.values);
      kernels.pack_panel(type, transpose_b, tile.as(type, rows * cols), rows, cols, 0, 0, num_steps,
                         packed + (panel * steps + step) * kPanelCols * 4);
    }
  });
}

}  // namespace weft::cpu
