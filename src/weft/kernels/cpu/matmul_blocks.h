// BlockKernels: the instruction-set dependent parts of products with weights that lie in quantised blocks.
//
// Rows of a are rounded to 8 bits in blocks of 32 with a scale each. Block i of a row of a and block i of a row of b
// meet in an integer dot product, which is exact. These are summed in f32 in eight lanes, block i in lane i % 8 in
// the order of i, and then the lanes in their order. Few rows of a hold the lanes of a column in one vector; many
// rows go from lane to lane with columns in vectors: the same operations on every element, so the same bits.
//
// INT8 has one scale to a row on both sides, so that the whole sum is of integers. FP8 and NF4 are multiplied with a
// as it is, in kFloatLanes lanes in the same way: as floats, or, where a is bf16 and the machine multiplies pairs of
// these, rounded to bf16.
#pragma once
#include "weft/kernels/cpu/matmul_kernels.h"

namespace weft::cpu {

inline constexpr int64_t kGroupBlocks = 8;  // of 32 codes: a group is a block of the K family, or eight others
inline constexpr int64_t kGroupElements = 32 * kGroupBlocks;
inline constexpr int64_t kFloatLanes = 16;        // of sums of floats
inline constexpr int64_t kMostFewRows = 4;        // of codes or floats at once
inline constexpr int64_t kMostRoundedRows = 512;  // at once: they stay near while panels pass

// A row of a, rounded: 32 codes of each block, then a scale of each, then two terms of each. What codes of b are
// stored without is in the terms: minus their offset times the sum of a's codes as i32 (of Q6_K of each half), or the
// sum of a's rounded values as f32 (Q4_K, Q5_K). Blocks are in their order, or lane by lane. For few rows of 4-bit weights
// a group's codes are in the order of its pairs of vectors.
//
// Rows `together` share one place: the codes of each block of all of them stand side by side, and so do scales and
// terms.
struct RoundedRow {
  int64_t groups;
  int64_t together = 1;
  constexpr int64_t blocks() const { return kGroupBlocks * groups; }
  constexpr int64_t scales() const { return 32 * blocks() * together; }  // offsets in bytes
  constexpr int64_t terms() const { return scales() + 4 * blocks() * together; }
  constexpr int64_t second_terms() const { return terms() + 4 * blocks() * together; }
  constexpr int64_t bytes() const { return second_terms() / together + 4 * blocks(); }  // of one row
};

// kPanelCols rows of b, which are columns of y: codes as [block, lane by lane][8][column][4] u8, then scales as
// [block][column] f32; then those of the second halves of Q6_K, or the minima of Q4_K. Codes of 4 bits may stay two
// to a byte, [block, lane by lane][4][column][4], word i below word 4 + i: half as much to write and to read again.
struct UnpackedPanel {
  int64_t groups;
  int64_t code_bytes = 32;  // of a block of one column
  constexpr int64_t blocks() const { return kGroupBlocks * groups; }
  constexpr int64_t scales() const { return code_bytes * kPanelCols * blocks(); }  // offsets in bytes
  constexpr int64_t second_scales() const { return scales() + 4 * kPanelCols * blocks(); }
  constexpr int64_t bytes() const { return second_scales() + 4 * kPanelCols * blocks(); }
};

enum class BlockMath : uint8_t { codes, int8, floats, pairs };

// With as many rows of a, unpacking a panel pays: of blocks soon, which take long to unpack for each row.
constexpr int64_t rows_worth_a_panel(BlockMath math, BlockType type) {
  switch (math) {
    case BlockMath::codes: return kMostFewRows + 1;
    case BlockMath::pairs: return type == BlockType::nf4 ? 49 : 33;
    default: return 2 * kMostFewRows + 1;
  }
}

// A row of a: a RoundedRow; or codes with their scale and term; or floats; or pairs. The latter three end with what
// keeps a tile's rows out of each other's place in the caches.
constexpr int64_t rounded_row_bytes(BlockMath math, int64_t groups) {
  switch (math) {
    case BlockMath::int8: return groups * kGroupElements + 64;
    case BlockMath::floats: return groups * kGroupElements * 4 + 64;
    case BlockMath::pairs: return groups * kGroupElements * 2 + 64;
    case BlockMath::codes: break;
  }
  return RoundedRow{groups}.bytes();
}

// The most that kPanelCols rows of b take: an UnpackedPanel; or codes with a scale of each column; or floats or
// pairs.
constexpr int64_t panel_bytes(BlockMath math, int64_t groups) {
  switch (math) {
    case BlockMath::int8: return (groups * kGroupElements + 4) * kPanelCols;
    case BlockMath::floats: return groups * kGroupElements * kPanelCols * 4;
    case BlockMath::pairs: return groups * kGroupElements * kPanelCols * 2;
    case BlockMath::codes: break;
  }
  return UnpackedPanel{groups}.bytes();
}

struct RoundCall {
  const void* a = nullptr;  // [rows, b.cols] of dtype
  DType dtype = DType::f32;
  const BlockMatrix* b = nullptr;  // whose blocks a is aligned to
  int64_t groups = 0;
  bool lane_by_lane = false;
  int together = 1;  // rows of codes
};

// What a tile brings into the caches while it multiplies, which alone leaves memory idle: lines of 64 bytes.
struct LinesAhead {
  const std::byte* from = nullptr;
  int64_t count = 0;
};

struct BlockKernels {
  BlockMath math = BlockMath::codes;
  int few = 0;        // the most rows that few_rows takes
  int tile_rows = 0;  // and many_rows
  int together = 1;   // rounded rows, where many_rows takes them
  // Rounds one row, the place-th of those together at out.
  void (*round_row)(const RoundCall&, int64_t row, int place, std::byte* out) = nullptr;
  // tile[rows, kPanelCols] = a times columns [col, col + cols) for rounded rows of a.
  void (*few_rows)(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
                   float* tile) = nullptr;
  // What many_rows takes: codes unsigned, or signed where they go to tile registers.
  void (*unpack)(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) = nullptr;
  // tile[rows, kPanelCols] = a times an unpacked panel, where a is rounded lane by lane.
  void (*many_rows)(BlockType, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile,
                    const LinesAhead&) = nullptr;
};

// The instruction sets a product can use, best last. avx2_vnni: AVX-VNNI, which desktops have without AVX-512. Those
// from avx512 on include each other.
enum class BlockIsa : uint8_t { avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, amx };

bool can_use(BlockIsa);     // on this machine
BlockIsa best_block_isa();  // of those
// For activations of a dtype.
const BlockKernels& block_kernels(BlockIsa, BlockType, DType of_a);

// Products of one a with their blocks_b, as matmuls_of_one_a, with a chosen instruction set, which the machine must
// have; matmul chooses the best.
void matmul_blocks_with(Stream&, std::span<const MatmulArgs>, BlockIsa);

}  // namespace weft::cpu
