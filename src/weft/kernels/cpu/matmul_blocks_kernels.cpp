// Micro-kernels of products with quantised blocks, for each type of block and each instruction set.
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
#include "weft/kernels/cpu/matmul_blocks_round-inl.h"
#include "weft/kernels/cpu/matmul_blocks_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

template <class T>
void round_row_as(const RoundCall& call, int64_t row, int place, std::byte* out) {
  switch (math_of(call.b->type)) {
    case BlockMath::floats: return widen_row_of<T>(call, row, out);
    case BlockMath::int8: return round_int8_row_of<T>(call, row, out);
    case BlockMath::codes:
      with_type(call.b->type,
                [&](auto type) HWY_ATTR { round_row_of<T, decltype(type)::value>(call, row, place, out); });
  }
}

void round_row(const RoundCall& call, int64_t row, int place, std::byte* out) {
  if (call.dtype == DType::f32) return round_row_as<float>(call, row, place, out);
  if (call.dtype == DType::bf16) return round_row_as<BFloat16>(call, row, place, out);
  round_row_as<Float16>(call, row, place, out);
}

template <bool kIsSigned>
void unpack(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  if (b.type == BlockType::fp8) return unpack_floats<BlockType::fp8>(b, groups, col, cols, panel);
  if (b.type == BlockType::nf4) return unpack_floats<BlockType::nf4>(b, groups, col, cols, panel);
  if (b.type == BlockType::int8) return unpack_int8<kIsSigned>(b, groups, col, cols, panel);
  with_type(b.type, [&](auto type) { unpack_panel<decltype(type)::value, kIsSigned>(b, groups, col, cols, panel); });
}

// Calls body(std::integral_constant<int, rows>()).
template <int kMost, class Body>
void with_rows(int rows, Body&& body) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return with_rows<kMost - 1>(rows, body);
  }
  body(std::integral_constant<int, kMost>());
}

template <class Dot>
void few_rows(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
              float* tile) {
  with_rows<int(kMostFewRows)>(rows, [&](auto n) {
    constexpr int kRows = decltype(n)::value;
    if (b.type == BlockType::fp8) return few_float_rows_of<BlockType::fp8, kRows>(b, groups, a, col, cols, tile);
    if (b.type == BlockType::nf4) return few_float_rows_of<BlockType::nf4, kRows>(b, groups, a, col, cols, tile);
    if (b.type == BlockType::int8) return few_int8_rows_of<Dot, kRows>(b, groups, a, col, cols, tile);
    with_type(b.type,
              [&](auto type) { few_rows_of<Dot, decltype(type)::value, kRows>(b, groups, a, col, cols, tile); });
  });
}

template <class Dot>
void many_rows(BlockType type, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile,
               const LinesAhead& ahead) {
  switch (math_of(type)) {
    case BlockMath::floats:
      return with_rows<kFloatTileRows>(
          rows, [&](auto n) { many_float_rows_of<decltype(n)::value>(groups, panel, a, tile, ahead); });
    case BlockMath::int8:
      return with_rows<kInt8TileRows>(
          rows, [&](auto n) { many_int8_rows_of<Dot, decltype(n)::value>(groups, panel, a, tile, ahead); });
    case BlockMath::codes:
      with_type(type, [&](auto t) {
        with_rows<kTileRows>(rows, [&](auto n) {
          many_rows_of<Dot, decltype(t)::value, decltype(n)::value>(groups, panel, a, tile, ahead);
        });
      });
  }
}

inline int tile_rows(BlockType type) {
  switch (math_of(type)) {
    case BlockMath::floats: return kFloatTileRows;
    case BlockMath::int8: return kInt8TileRows;
    case BlockMath::codes: break;
  }
  return kTileRows;
}

template <class Dot>
constexpr BlockKernels kKernelsWith{.tile_rows = tile_rows,
                                    .round_row = round_row,
                                    .few_rows = few_rows<Dot>,
                                    .unpack = unpack<false>,
                                    .many_rows = many_rows<Dot>};

#if HWY_TARGET == HWY_AVX3
int tile_rows_in_registers(BlockType type) {
  switch (math_of(type)) {
    case BlockMath::floats: return kFloatTileRows;
    case BlockMath::int8: return 2 * kTilesRows;
    case BlockMath::codes: break;
  }
  return kTilesRows;
}

void many_rows_in_registers(BlockType type, int64_t groups, const std::byte* panel, const std::byte* a, int rows,
                            float* tile, const LinesAhead& ahead) {
  switch (math_of(type)) {
    case BlockMath::floats: return many_rows<DotVnni>(type, groups, panel, a, rows, tile, ahead);
    case BlockMath::int8:
      return with_rows<2 * kTilesRows>(
          rows, [&](auto n) { many_int8_rows_in_tiles<decltype(n)::value>(groups, panel, a, tile, ahead); });
    case BlockMath::codes:
      with_type(type, [&](auto t) {
        with_rows<kTilesRows>(rows, [&](auto n) {
          many_rows_in_tiles<decltype(t)::value, decltype(n)::value>(groups, panel, a, tile, ahead);
        });
      });
  }
}

constexpr BlockKernels kKernelsInRegisters{.tile_rows = tile_rows_in_registers,
                                           .together = kTilesRows,
                                           .round_row = round_row,
                                           .few_rows = few_rows<DotVnni>,
                                           .unpack = unpack<true>,
                                           .many_rows = many_rows_in_registers};
#endif

inline const BlockKernels& kernels_of(BlockIsa isa) {
#if HWY_TARGET == HWY_AVX3
  if (isa == BlockIsa::amx) return kKernelsInRegisters;
  if (isa == BlockIsa::avx512_vnni) return kKernelsWith<DotVnni>;
#endif
  static_cast<void>(isa);
  return kKernelsWith<DotPairs>;
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

BlockIsa best_block_isa() {
  static const BlockIsa best = [] {
#if HWY_TARGETS & HWY_AVX3
    if (hwy::SupportedTargets() & HWY_AVX3) {
      if (!__builtin_cpu_supports("avx512vnni")) return BlockIsa::avx512;
      return amx::can_use() ? BlockIsa::amx : BlockIsa::avx512_vnni;
    }
#endif
    return BlockIsa::avx2;
  }();
  return best;
}

const BlockKernels& block_kernels(BlockIsa isa) {
#if HWY_TARGETS & HWY_AVX3
  if (isa != BlockIsa::avx2) return N_AVX3::kernels_of(isa);
#endif
  return N_AVX2::kernels_of(isa);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
