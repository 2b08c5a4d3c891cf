// Products of many rows with weights in blocks in tile registers: the dot products of 16 rows and 16 columns at once.
#include <algorithm>

#include "weft/kernels/cpu/amx.h"
#include "weft/kernels/cpu/matmul_blocks_int8-inl.h"
#include "weft/kernels/cpu/matmul_blocks_many-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_TILES_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_TILES_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_TILES_INL_H_
#endif

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int kTilesRows = amx::kRows;  // of a tile of products with codes; INT8 has two of them

template <int kRows, int kBytes>
constexpr amx::Shapes kDotShapes = amx::product_shapes(kRows, kBytes);

// The dot products of a block's codes, or of a half of them, to out [kRows][16].
template <int kRegister>
HWY_INLINE void dot_codes(const std::byte* a, const std::byte* codes, int32_t* out) {
  constexpr int kA = 4 + kRegister % 2, kB = 6 + kRegister % 2;
  amx::zero<kRegister>();
  amx::load<kA>(a, 32);
  amx::load<kB>(codes, kPanelCols * 4);
  amx::dot_int8<kRegister, kA, kB>();
  amx::store<kRegister>(out, amx::kRowBytes);
}

// Rows of a panel of signed codes. What a tile of dot products gives is scaled while the next is multiplied.
template <BlockType kType, int kRows>
void many_rows_in_tiles(int64_t groups, const std::byte* panel, const std::byte* a, float* tile,
                        const LinesAhead& ahead) {
  constexpr int kHalves = kHasSecondHalves<kType> ? 2 : 1, kBytes = 32 / kHalves;
  const I32Tag d;
  const F32Tag f;
  const UnpackedPanel b{groups};
  const RoundedRow row{groups, kTilesRows};
  Fetcher fetcher(ahead, 2 * b.blocks());
  amx::use(kDotShapes<kRows, kBytes>);
  std::fill_n(tile, kRows * kPanelCols, 0.0f);
  for (int64_t c = 0; c < kPanelCols; c += amx::kRows) {
    alignas(64) int32_t dots[2][kHalves][kRows * amx::kRows];
    // Of block `block` to dots[kPlace].
    const auto multiply = [&]<int kPlace>(std::integral_constant<int, kPlace>, int64_t block) HWY_ATTR {
      const std::byte* const codes = panel + block * 32 * kPanelCols + c * 4;
      const std::byte* const rows = a + block * 32 * kTilesRows;
      dot_codes<kPlace>(rows, codes, dots[kPlace][0]);
      if constexpr (kHalves == 2) dot_codes<2 + kPlace>(rows + 16, codes + 16 * kPanelCols, dots[kPlace][1]);
    };
    const std::integral_constant<int, 0> even;
    const std::integral_constant<int, 1> odd;
    multiply(even, 0);
    for (int64_t block = 0; block < b.blocks();) {
      F32 sums[kRows];
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) sums[i] = hn::Zero(f);
#pragma GCC unroll 1
      for (int64_t g = 0; g < groups; ++g, ++block) {
        fetcher.step();
        if (block + 1 < b.blocks()) block % 2 ? multiply(even, block + 1) : multiply(odd, block + 1);
        const std::byte* const scales = panel + b.scales() + (block * kPanelCols + c) * 4;
        const std::byte* const second = panel + b.second_scales() + (block * kPanelCols + c) * 4;
        const std::byte* const a_scales = a + row.scales() + block * 4 * kTilesRows;
        [[maybe_unused]] const std::byte* const terms = a + row.terms() + block * 4 * kTilesRows;
        const F32 by = hn::LoadU(f, reinterpret_cast<const float*>(scales));
        F32 by_second;
        if constexpr (kHalves == 2 || kHasMinima<kType>)
          by_second = hn::LoadU(f, reinterpret_cast<const float*>(second));
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          const F32 scale = hn::Set(f, read<float>(a_scales + i * 4));
          const auto add = [&](int half, F32 factor) HWY_ATTR {
            const I32 dot = hn::Load(d, dots[block % 2][half] + i * amx::kRows);
            sums[i] = hn::MulAdd(hn::ConvertTo(f, dot), hn::Mul(scale, factor), sums[i]);
          };
          add(0, by);
          if constexpr (kHalves == 2) add(1, by_second);
          if constexpr (kHasMinima<kType>)
            sums[i] = hn::NegMulAdd(hn::Set(f, read<float>(terms + i * 4)), by_second, sums[i]);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        float* const total = tile + i * kPanelCols + c;
        hn::StoreU(hn::Add(hn::LoadU(f, total), sums[i]), f, total);
      }
    }
  }
}

// INT8: one sum over all of K.
template <int kRows>
void many_int8_rows_in_tiles(int64_t groups, const std::byte* panel, const std::byte* a, float* tile,
                             const LinesAhead& ahead) {
  constexpr bool kHasLower = kRows > amx::kRows;
  const I32Tag d;
  const F32Tag f;
  const int64_t size = groups * kGroupElements, stride = rounded_row_bytes(BlockMath::int8, groups);
  Fetcher fetcher(ahead, size / amx::kRowBytes);
  amx::use(kDotShapes<kRows, amx::kRowBytes>);
  amx::zero<0>(), amx::zero<1>(), amx::zero<2>(), amx::zero<3>();
  const std::byte* b = panel;
  for (int64_t k = 0; k < size; k += amx::kRowBytes, b += kPanelCols * amx::kRowBytes) {
    fetcher.step();
    amx::load<4>(a + k, stride);
    amx::load<6>(b, kPanelCols * 4);
    amx::dot_int8<0, 4, 6>();
    amx::load<7>(b + amx::kRowBytes, kPanelCols * 4);
    amx::dot_int8<1, 4, 7>();
    if constexpr (kHasLower) {
      amx::load<5>(a + amx::kRows * stride + k, stride);
      amx::dot_int8<2, 5, 6>();
      amx::dot_int8<3, 5, 7>();
    }
  }
  alignas(64) int32_t sums[kRows][kPanelCols];
  constexpr int64_t kSumsBytes = kPanelCols * 4;
  amx::store<0>(sums[0], kSumsBytes);
  amx::store<1>(sums[0] + amx::kRows, kSumsBytes);
  if constexpr (kHasLower) {
    amx::store<2>(sums[amx::kRows], kSumsBytes);
    amx::store<3>(sums[amx::kRows] + amx::kRows, kSumsBytes);
  }
  const auto* const scales = reinterpret_cast<const float*>(panel + size * kPanelCols);
  for (int i = 0; i < kRows; ++i) {
    const F32 a_scale = hn::Set(f, read<float>(a + i * stride + size));
    for (int c = 0; c < kPanelCols; c += amx::kRows) {
      const F32 by = hn::Mul(a_scale, hn::LoadU(f, scales + c));
      hn::StoreU(hn::Mul(hn::ConvertTo(f, hn::Load(d, sums[i] + c)), by), f, tile + i * kPanelCols + c);
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
