// How products of groups of rows are cut into tiles, one to a block of threads.
#pragma once
#include <cstdint>

#include "weft/base/ceil_div.h"

namespace weft::cuda {

inline constexpr int kTileCols = 128;
inline constexpr int64_t kMostBlocksY = 65535;  // of a grid's second dimension, which goes over rows of groups

// Rows of a tile, for groups of so many rows in the mean: larger tiles read less, and leave more of themselves empty.
inline constexpr int kFewestTileRows = 64, kMostTileRows = 128;
constexpr int64_t tile_rows(int64_t mean_rows) { return mean_rows <= 48 ? kFewestTileRows : kMostTileRows; }

// Whether groups' products, m x n of k each in the mean, take less time together than cuBLASLt takes for one after
// the other. That keeps all of a card busy with products of some dozens of its tiles; from 9.0 on it has instructions
// that are faster than those of tiles by more than twice, so that fewer are enough. But a launch takes no less time
// than tiles take for 2^29 multiplications. By estimate: no card was asked.
constexpr bool gain_in_tiles(int64_t m, int64_t n, int64_t k, int capability) {
  constexpr int64_t kLaunch = int64_t(1) << 29;
  const int64_t busy = int64_t(1) << (capability >= 90 ? 20 : 22);
  return m * n < busy || m * n * k < kLaunch;
}

}  // namespace weft::cuda
