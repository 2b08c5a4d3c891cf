// Micro-kernels of products with quantised blocks, for each type of block and each instruction set.
#include "weft/kernels/cpu/matmul_blocks.h"
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/matmul_blocks_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "weft/kernels/cpu/matmul_blocks_few-inl.h"
#include "weft/kernels/cpu/matmul_blocks_many-inl.h"
#include "weft/kernels/cpu/matmul_blocks_round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

void round_row(const RoundCall& call, int64_t row, std::byte* out) {
  with_type(call.b->type, [&](auto type) HWY_ATTR {
    constexpr BlockType kType = decltype(type)::value;
    if (call.dtype == DType::f32)
      round_row_of<float, kType>(call, row, out);
    else if (call.dtype == DType::bf16)
      round_row_of<BFloat16, kType>(call, row, out);
    else
      round_row_of<Float16, kType>(call, row, out);
  });
}

void unpack(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  with_type(b.type, [&](auto type) { unpack_panel<decltype(type)::value>(b, groups, col, cols, panel); });
}

template <class Dot>
void few_rows(const BlockMatrix& b, int64_t groups, const std::byte* a, int rows, int64_t col, int cols,
              float* tile) {
  with_type(b.type, [&](auto type) {
    constexpr BlockType kType = decltype(type)::value;
    switch (rows) {
      case 1: return few_rows_of<Dot, kType, 1>(b, groups, a, col, cols, tile);
      case 2: return few_rows_of<Dot, kType, 2>(b, groups, a, col, cols, tile);
      case 3: return few_rows_of<Dot, kType, 3>(b, groups, a, col, cols, tile);
      default: return few_rows_of<Dot, kType, 4>(b, groups, a, col, cols, tile);
    }
  });
}

template <class Dot, BlockType kType, int kRows>
void many_rows_at_most(int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return many_rows_at_most<Dot, kType, kRows - 1>(groups, panel, a, rows, tile);
  }
  many_rows_of<Dot, kType, kRows>(groups, panel, a, tile);
}

template <class Dot>
void many_rows(BlockType type, int64_t groups, const std::byte* panel, const std::byte* a, int rows, float* tile) {
  with_type(type,
            [&](auto t) { many_rows_at_most<Dot, decltype(t)::value, kTileRows>(groups, panel, a, rows, tile); });
}

template <class Dot>
constexpr BlockKernels kKernelsWith{.tile_rows = kTileRows,
                                    .round_row = round_row,
                                    .few_rows = few_rows<Dot>,
                                    .unpack = unpack,
                                    .many_rows = many_rows<Dot>};

inline const BlockKernels& kernels_of(BlockIsa isa) {
#if HWY_TARGET == HWY_AVX3
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
#if HWY_TARGETS & HWY_AVX3
  if (hwy::SupportedTargets() & HWY_AVX3) {
    return __builtin_cpu_supports("avx512vnni") ? BlockIsa::avx512_vnni : BlockIsa::avx512;
  }
#endif
  return BlockIsa::avx2;
}

const BlockKernels& block_kernels(BlockIsa isa) {
#if HWY_TARGETS & HWY_AVX3
  if (isa != BlockIsa::avx2) return N_AVX3::kernels_of(isa);
#endif
  return N_AVX2::kernels_of(isa);
}

}  // namespace weft::cpu
#endif  // HWY_ONCE
