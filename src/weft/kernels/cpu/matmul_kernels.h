// MatmulKernels: the instruction-set dependent parts of the CPU matrix product: micro-kernels, packing, epilogues.
//
// A product runs in "steps" along K: one element of K in f32 and f16, two neighbours in bf16. b is packed as panels
// of 32 columns, [panel][step][32] of 4 bytes: an f32 (also of an f16), or a bf16 pair (2k, 2k+1) with the even one
// in the low half. Missing columns and the partner of an odd last k are zero. The layout is the same on every
// machine.
#pragma once
#include <cstddef>
#include <cstdint>

#include "weft/kernels/kernels.h"

namespace weft::cpu {

inline constexpr int kPanelCols = 32;
inline constexpr int kMaxTileRows = 32;
// How far ahead of a product that is bound by memory its weights are fetched. Further than 10 KiB a Zen 4's own
// fetching and this disturb each other; nearer than 5 KiB codes of few bits wait.
inline constexpr int64_t kNearAhead = 6 << 10;

// A block of a is packed tile by tile, [tile][word][rows of the tile], so that a tile reads one stream: at every step
// the words of its rows, side by side. Words are f32, or bf16 pairs; those of a bf16 widened to f32 are two a step.
// Behind each tile is room for what whole vectors write too much. For tile registers it is [tile][16
// words][rows][word]: what a register holds lies together.
inline constexpr int64_t kTilePad = 16;  // words

// Rows of the next tile when `left` remain: two last tiles share evenly what one cannot hold well.
inline int next_tile_rows(int64_t left, int most) {
  if (left <= most) return int(left);
  return left < most + most / 2 ? int((left + 1) / 2) : most;
}
// Where the tile at `row`, the `tile`-th, begins in a block of `words` a row.
inline int64_t tile_offset(int64_t row, int64_t tile, int64_t words) { return row * words + tile * kTilePad; }

// How operands are multiplied.
enum class DotKind : uint8_t {
  f32,
  bf16_pairs,   // the machine's bf16 dot product; a packed as pairs
  bf16_as_f32,  // a packed as f32, b widened in registers: for machines without a bf16 dot product
  f16_as_f32,   // both packed as f32
  bf16_tiles,   // the machine's products of tile registers; a packed as pairs
};

// Words of a row of a in a packed block of `steps`; those past its end are zero.
constexpr int64_t packed_words(DotKind kind, int64_t steps) {
  if (kind == DotKind::bf16_as_f32) return 2 * steps;
  return kind == DotKind::bf16_tiles ? (steps + 15) / 16 * 16 : steps;
}

// One tile: out = a b + add over `steps`. Rows and column vectors are fixed by the kernel.
struct TileCall {
  int64_t steps = 0;
  const void* a = nullptr;     // the tile's rows of the packed block of a
  const void* b = nullptr;     // panel at the first step and the tile's first column
  const float* add = nullptr;  // optional
  int64_t add_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  // Memory to bring into L2 meanwhile: `ahead_bytes` further at every step. It need not exist.
  const std::byte* ahead = nullptr;
  int64_t ahead_bytes = 0;
};
using TileKernel = void (*)(const TileCall&);

// A tensor of [M, N] (or [N]) as the epilogue sees it; no data means not wanted.
struct EpilogueOperand {
  std::byte* data = nullptr;
  DType type = DType::f32;  // or bf16 or f16
};

struct EpilogueCall {
  EpilogueOperand y, bias, act, gate, up, pre, dgate;
  int64_t n = 0;  // columns of the whole result
  bool accumulate = false;
};
// Applies the epilogue to the rows x cols tile (stride kPanelCols) at (row, col) of the result.
using EpilogueKernel = void (*)(const EpilogueCall&, const float* tile, int64_t row, int64_t col, int rows, int cols);

// The operands of a product's epilogue. Throws Error where one, or a, is of no dtype that products on CPUs have.
EpilogueCall epilogue_call(const MatmulArgs& args);

// A block of a in memory: element (row, k) of bytes at a + (row * ld + k) * size, or a + (k * ld + row) * size.
struct BlockOfA {
  const void* a = nullptr;
  int64_t ld = 0;
  int64_t row = 0, rows = 0;
  int64_t k = 0, num_k = 0;  // k is even in bf16
};

struct MatmulKernels {
  int (*tile_rows)(DotKind) = nullptr;  // the most rows of a tile
  int vector_cols = 0;                  // columns of one vector; a tile has one or two
  DotKind bf16_kind = DotKind::bf16_as_f32;

  // tiles(kind)[(rows - 1) * 2 + vectors - 1]
  const TileKernel* (*tiles)(DotKind) = nullptr;
  EpilogueKernel (*epilogue)(Epilogue::Kind, Activation) = nullptr;
  // Packs a block of a for tiles of at most `tile_rows` rows.
  void (*pack_a)(DotKind, bool transposed_a, const BlockOfA&, void* packed, int tile_rows) = nullptr;
  // Packs steps [step, step + num_steps) of one panel of b[K, N] (or b[N, K]) at `panel` columns * kPanelCols.
  void (*pack_panel)(DType, bool transpose_b, const void* b, int64_t k, int64_t n, int64_t panel, int64_t step,
                     int64_t num_steps, void* packed_panel) = nullptr;
};

// Packs panels [panel_begin, panel_end) of an NF4 b, decoded tile by tile, as products of `type` want them.
void pack_nf4_panels(ThreadTeam& team, const MatmulKernels& kernels, DType type, const nf4::Matrix& b,
                     bool transpose_b, int64_t panel_begin, int64_t panel_end, std::byte* packed);

// The instruction sets a product can use. Each includes those before it, which may be faster.
enum class MatmulIsa : uint8_t { avx2, avx512, avx512_bf16, amx };

bool can_use(MatmulIsa isa);  // on this machine
MatmulIsa best_matmul_isa();  // the fastest of them
const MatmulKernels& matmul_kernels(MatmulIsa);

// float8_grid.cpp: x [R, C] of bf16 on the grid of float8_groups.h, in groups along C, or along R.
Tensor on_float8_grid(Stream&, const Tensor& x, bool groups_run_down);

// cpu::matmul with a chosen instruction set, for tests: the machine must have it.
void matmul_with(Stream&, const MatmulArgs&, MatmulIsa);

}  // namespace weft::cpu
