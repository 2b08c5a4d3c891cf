// Float8Way: how a product of many rows with a weight in fp8 is computed; plain arithmetic that needs no GPU to be
// tested.
#pragma once
#include <cstdint>

#include "weft/base/ceil_div.h"
#include "weft/kernels/block_matrix.h"
#include "weft/kernels/cuda/launch_shape.h"

namespace weft::cuda {

enum class Float8Way : uint8_t {
  decoded,       // the weight becomes floats of the activations' dtype
  row_scales,    // codes are multiplied, and sums with the scales of the row of a and of the row of the weight
  block_scales,  // codes and scales of 128 neighbours along k go to the library as they are
};

// Cards multiply E4M3 from Ada (8.9) on; scales of 128 neighbours only Hopper's library takes (cuBLAS 12.9 and
// later). Source: NVIDIA, "cuBLAS Library", 13.1, "Narrow Precision Data Types Usage".
inline Float8Way float8_way(int compute_capability, const BlockMatrix& b, bool transpose_a) {
  constexpr int kAda = 89, kHopper = 90;
  constexpr int64_t kStep = 16;  // what dimensions must be multiples of
  if (b.type != BlockType::fp8 || transpose_a || b.rows % kStep != 0) return Float8Way::decoded;
  if (compute_capability == kHopper) return Float8Way::block_scales;
  return compute_capability >= kAda && b.has_row_scales ? Float8Way::row_scales : Float8Way::decoded;
}

// The codes of a product as they lie for the library: rows of whole blocks, with zeros where b has others' elements.
struct Float8Shape {
  static constexpr int64_t kBlock = 128;
  int64_t rows = 0;          // of a, with rows of zeros up to a multiple of 4
  int64_t length = 0;        // of a row
  int64_t columns = 0;       // of y that are computed together: a multiple of 16, as all of y's are
  bool is_in_place = false;  // the library writes y itself

  int64_t row_blocks() const { return length / kBlock; }
  // [rows or columns] of a scale to a row, [row_blocks, rows or columns] of one to a block.
  int64_t num_scales(Float8Way way, int64_t of) const {
    return way == Float8Way::block_scales ? of * row_blocks() : of;
  }
};

// has_more: y gets more than the product, before it is rounded.
inline Float8Shape float8_shape(Float8Way way, const BlockMatrix& b, int64_t m, bool has_more) {
  constexpr int64_t kMostBytes = int64_t(256) << 20, kStep = 128;  // of codes of b at once
  Float8Shape s;
  s.rows = round_up(m, int64_t(4));
  s.length = b.row_blocks() * Float8Shape::kBlock;
  s.columns = std::min(b.rows, std::max(kMostBytes / s.length / kStep, int64_t(1)) * kStep);
  s.is_in_place = way == Float8Way::block_scales && s.rows == m && !has_more;
  return s;
}

// ---- both operands rounded in groups of 128 (MatmulArgs::float8) ----

// Whether the library takes their codes and scales; elsewhere they are multiplied as bf16.
inline bool multiplies_codes(int compute_capability, int64_t n) { return compute_capability == 90 && n % 16 == 0; }

struct RoundedShape {
  int64_t rows = 0;          // of a, with rows of zeros up to a multiple of 4
  int64_t length = 0;        // of a line along k, with zeros up to a multiple of 128
  bool is_in_place = false;  // the library writes y itself
};

// has_more: y gets more than the product, before it is rounded.
inline RoundedShape rounded_shape(int64_t m, int64_t k, bool has_more) {
  const int64_t rows = round_up(m, int64_t(4));
  return {rows, round_up(k, Float8Shape::kBlock), rows == m && !has_more};
}

// A warp to each group of lines that lie one after the other.
inline LaunchShape rounding_across(int64_t lines, int64_t length) {
  constexpr int64_t kWarps = 4;
  return {.blocks_x = unsigned(ceil_div(lines * (length / Float8Shape::kBlock), kWarps)),
          .threads = unsigned(kWarps * kWarp)};
}
// A block to 32 lines that lie side by side, for each group.
inline LaunchShape rounding_down(int64_t lines, int64_t length) {
  return {.blocks_x = unsigned(ceil_div(lines, int64_t(kWarp))),
          .blocks_y = unsigned(length / Float8Shape::kBlock),
          .threads = 8 * kWarp};
}

}  // namespace weft::cuda
