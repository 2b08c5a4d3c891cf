// Micro-kernels of products with quantised blocks, for each type of block and each instruction set.
#include "weft/kernels/cpu/bf16_pairs.h"
#include "weft/kernels/cpu/matmul_blocks.h"
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/matmul_blocks_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "weft/kernels/cpu/matmul_blocks_few-inl.h"
#include "weft/kernels/cpu/matmul_blocks_floats-inl.h"
#include "weft/kernels/cpu/matmul_blocks_int8-inl.h"
#include "weft/kernels/cpu/matmul_blocks_many-inl.h"
#include "weft/kernels/cpu/matmul_blocks_pairs-inl.h"
#include "weft/kernels/cpu/matmul_blocks_round-inl.h"
#include "weft/kernels/cpu/matmul_blocks_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Calls body(T()) for the dtype of activations.
template <class Body>
void with_element(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body(float());
  if (dtype == DType::bf16) return body(BFloat16());
  body(Float16());
}

// Calls body(std::integral_constant<int, rows>()).
template <int kMost, class Body>
void with_rows(int rows, Body&& body) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_rows<kMost - 1>(rows, body);
  }
  body(std::integral_constant<int, kMost>());
}

// Calls body(std::integral_constant<BlockType, type>()) for types whose codes stand for floats.
template <class Body>
void with_float_type(BlockType type, Body&& body) {
  if (type == BlockType::fp8) return body(std::integral_constant<BlockType, BlockType::fp8>());
  body(std::integral_constant<BlockType, BlockType::nf4>());
}

// ---- codes with a scale to each block ----

void round_codes(const RoundCall& call, int64_t row, int place, std::byte* out) {
  with_element(call.dtype, [&](auto t) {
    with_type(call.b->type,
              [&](auto type) HWY_ATTR { round_row_of<decltype(t), decltype(type)::value>(call, row, place, out); });
  });
}

template <class Dot>
void few_rows(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
              float* tile) {
  with_rows<int(kMostFewRows)>(rows, [&](auto n) {
    with_type(b.type, [&](auto type) {
      few_rows_of<Dot, decltype(type)::value, decltype(n)::value>(b, groups, a, col, cols, tile);
    });
  });
}

template <bool kInTiles, bool kWideIsSigned>
void unpack(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  with_type(b.type, [&](auto type) {
    unpack_panel<decltype(type)::value, kInTiles, kWideIsSigned>(b, groups, col, cols, panel);
  });
}

template <class Dot>
void many_rows(BlockType type, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile,
               const LinesAhead& ahead) {
  with_type(type, [&](auto t) {
    with_rows<kTileRows>(rows, [&](auto n) {
      many_rows_of<Dot, decltype(t)::value, decltype(n)::value>(groups, panel, a, tile, ahead);
    });
  });
}

template <class Dot>
constexpr BlockKernels kCodeKernels{.math = BlockMath::codes,
                                    .few = int(kMostFewRows),
                                    .tile_rows = kTileRows,
                                    .round_row = round_codes,
                                    .few_rows = few_rows<Dot>,
                                    .unpack = unpack<false, Dot::kWideIsSigned>,
                                    .many_rows = many_rows<Dot>};

// ---- codes with a scale to each row ----

void round_int8(const RoundCall& call, int64_t row, int, std::byte* out) {
  with_element(call.dtype, [&](auto t) HWY_ATTR { round_int8_row_of<decltype(t)>(call, row, out); });
}

template <class Dot>
void few_int8_rows(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
                   float* tile) {
  with_rows<int(kMostFewRows)>(
      rows, [&](auto n) { few_int8_rows_of<Dot, decltype(n)::value>(b, groups, a, col, cols, tile); });
}

template <class Dot>
void many_int8_rows(BlockType, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile,
                    const LinesAhead& ahead) {
  with_rows<kInt8TileRows>(
      rows, [&](auto n) { many_int8_rows_of<Dot, decltype(n)::value>(groups, panel, a, tile, ahead); });
}

template <class Dot>
constexpr BlockKernels kInt8Kernels{.math = BlockMath::int8,
                                    .few = int(kMostFewRows),
                                    .tile_rows = kInt8TileRows,
                                    .round_row = round_int8,
                                    .few_rows = few_int8_rows<Dot>,
                                    .unpack = unpack_int8<Dot::kWideIsSigned>,
                                    .many_rows = many_int8_rows<Dot>};

// ---- floats ----

void widen_row(const RoundCall& call, int64_t row, int, std::byte* out) {
  with_element(call.dtype, [&](auto t) HWY_ATTR { widen_row_of<decltype(t)>(call, row, out); });
}

void few_float_rows(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
                    float* tile) {
  with_rows<int(kMostFewRows)>(rows, [&](auto n) {
    with_float_type(b.type, [&](auto type) {
      few_float_rows_of<decltype(type)::value, decltype(n)::value>(b, groups, a, col, cols, tile);
    });
  });
}

void unpack_floats(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  with_float_type(b.type, [&](auto type) { unpack_floats_of<decltype(type)::value>(b, groups, col, cols, panel); });
}

void many_float_rows(BlockType, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile,
                     const LinesAhead& ahead) {
  with_rows<kFloatTileRows>(
      rows, [&](auto n) { many_word_rows_of<FloatWord, decltype(n)::value>(groups, panel, a, tile, ahead); });
}

constexpr BlockKernels kFloatKernels{.math = BlockMath::floats,
                                     .few = int(kMostFewRows),
                                     .tile_rows = kFloatTileRows,
                                     .round_row = widen_row,
                                     .few_rows = few_float_rows,
                                     .unpack = unpack_floats,
                                     .many_rows = many_float_rows};

#if HWY_TARGET == HWY_AVX3
// ---- pairs of bf16 ----

void pair_row(const RoundCall& call, int64_t row, int, std::byte* out) {
  with_float_type(call.b->type, [&](auto type) { pair_row_of<decltype(type)::value>(call, row, out); });
}

void few_pair_rows(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
                   float* tile) {
  with_rows<kMostFewPairRows>(rows, [&](auto n) {
    with_float_type(b.type, [&](auto type) {
      few_pair_rows_of<decltype(type)::value, decltype(n)::value>(b, groups, a, col, cols, tile);
    });
  });
}

void unpack_pairs(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  with_float_type(b.type, [&](auto type) { unpack_pairs_of<decltype(type)::value>(b, groups, col, cols, panel); });
}

void many_pair_rows(BlockType, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile,
                    const LinesAhead& ahead) {
  with_rows<kFloatTileRows>(
      rows, [&](auto n) { many_word_rows_of<PairWord, decltype(n)::value>(groups, panel, a, tile, ahead); });
}

constexpr BlockKernels kPairKernels{.math = BlockMath::pairs,
                                    .few = kMostFewPairRows,
                                    .tile_rows = kFloatTileRows,
                                    .round_row = pair_row,
                                    .few_rows = few_pair_rows,
                                    .unpack = unpack_pairs,
                                    .many_rows = many_pair_rows};

// ---- tile registers ----

void many_rows_in_registers(BlockType type, int64_t groups, const std::byte* panel, const std::byte* a, int rows,
                            float* tile, const LinesAhead& ahead) {
  with_type(type, [&](auto t) {
    with_rows<kTilesRows>(rows, [&](auto n) {
      many_rows_in_tiles<decltype(t)::value, decltype(n)::value>(groups, panel, a, tile, ahead);
    });
  });
}

void many_int8_rows_in_registers(BlockType, int64_t groups, const std::byte* panel, const std::byte* a, int rows,
                                 float* tile, const LinesAhead& ahead) {
  with_rows<2 * kTilesRows>(
      rows, [&](auto n) { many_int8_rows_in_tiles<decltype(n)::value>(groups, panel, a, tile, ahead); });
}

constexpr BlockKernels kCodeKernelsInRegisters{.math = BlockMath::codes,
                                               .few = int(kMostFewRows),
                                               .tile_rows = kTilesRows,
                                               .together = kTilesRows,
                                               .round_row = round_codes,
                                               .few_rows = few_rows<DotVnni>,
                                               .unpack = unpack<true, true>,
                                               .many_rows = many_rows_in_registers};

constexpr BlockKernels kInt8KernelsInRegisters{.math = BlockMath::int8,
                                               .few = int(kMostFewRows),
                                               .tile_rows = 2 * kTilesRows,
                                               .round_row = round_int8,
                                               .few_rows = few_int8_rows<DotVnni>,
                                               .unpack = unpack_int8<true>,
                                               .many_rows = many_int8_rows_in_registers};
#endif

// ---- the choice ----

inline const BlockKernels& kernels_of(BlockIsa isa, BlockType type, DType of_a) {
  const bool is_int8 = type == BlockType::int8, are_floats = type == BlockType::fp8 || type == BlockType::nf4;
#if HWY_TARGET == HWY_AVX3
  if (are_floats && of_a == DType::bf16 && isa >= BlockIsa::avx512_bf16) return kPairKernels;
  if (are_floats) return kFloatKernels;
  if (isa == BlockIsa::amx) return is_int8 ? kInt8KernelsInRegisters : kCodeKernelsInRegisters;
  if (isa >= BlockIsa::avx512_vnni) return is_int8 ? kInt8Kernels<DotVnni> : kCodeKernels<DotVnni>;
#endif
  static_cast<void>(of_a);
  if (are_floats) return kFloatKernels;
#if HWY_TARGET == HWY_AVX2
  if (isa == BlockIsa::avx2_vnni) return is_int8 ? kInt8Kernels<DotVnni> : kCodeKernels<DotVnni>;
#endif
  return is_int8 ? kInt8Kernels<DotPairs> : kCodeKernels<DotPairs>;
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

bool can_use(BlockIsa isa) {
#if HWY_TARGETS & HWY_AVX3
  const bool has_avx512 = hwy::SupportedTargets() & HWY_AVX3;
#else
  const bool has_avx512 = false;
#endif
  switch (isa) {
    case BlockIsa::avx2: return true;
    case BlockIsa::avx2_vnni: return __builtin_cpu_supports("avxvnni");
    case BlockIsa::avx512: return has_avx512;
    case BlockIsa::avx512_vnni: return has_avx512 && __builtin_cpu_supports("avx512vnni");
    case BlockIsa::avx512_bf16: return can_use(BlockIsa::avx512_vnni) && has_bf16_pairs();
    case BlockIsa::amx: return can_use(BlockIsa::avx512_bf16) && amx::can_use();
  }
  return false;
}

BlockIsa best_block_isa() {
  static const BlockIsa best = [] {
    BlockIsa isa = BlockIsa::amx;
    while (!can_use(isa)) isa = BlockIsa(int(isa) - 1);
    return isa;
  }();
  return best;
}

const BlockKernels& block_kernels(BlockIsa isa, BlockType type, DType of_a) {
#if HWY_TARGETS & HWY_AVX3
  if (isa >= BlockIsa::avx512) return N_AVX3::kernels_of(isa, type, of_a);
#endif
  return N_AVX2::kernels_of(isa, type, of_a);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
