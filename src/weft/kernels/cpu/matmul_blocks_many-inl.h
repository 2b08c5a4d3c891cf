// Products of many rows with weights in blocks: the codes of 32 columns side by side.
#include <algorithm>

#include "weft/kernels/cpu/matmul_blocks_codes-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Of eight columns words [column][word], and those of a second block behind them where there are 16 to a column: word
// i of all columns to out + i * stride, and of the second block `behind` bytes further.
template <int kWords>
HWY_INLINE void store_columns(const uint32_t (&in)[8][kWords], std::byte* out, int64_t stride, int64_t behind) {
  const hn::FixedTag<uint32_t, kWords> d;
  const U32x8 d8;
  hn::Vec<decltype(d)> lines[8], columns[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) lines[i] = hn::Load(d, in[i]);
  transpose_8x8(lines, columns);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    auto* const to = reinterpret_cast<uint32_t*>(out + i * stride);
    if constexpr (kWords == 8) {
      hn::StoreU(columns[i], d8, to);
    } else {
      hn::StoreU(hn::LowerHalf(columns[i]), d8, to);
      hn::StoreU(hn::UpperHalf(d8, columns[i]), d8, reinterpret_cast<uint32_t*>(out + behind + i * stride));
    }
  }
}

template <BlockType kType>
void unpack_panel(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  const U32x8 d;
  const UnpackedPanel layout{groups};
  RowOfB<kType> rows[kPanelCols];
  for (int j = 0; j < kPanelCols; ++j) rows[j].set(b, col + std::min(j, cols - 1));  // what is too much is not used
  for (int64_t g = 0; g < groups; ++g) {
    for (int c = 0; c < kPanelCols; c += 8) {
      alignas(64) uint32_t codes[kGroupBlocks / kTogether][8][8 * kTogether];  // [vector][column][four codes each]
      alignas(64) uint32_t scales[2][8][8];                                    // [which][column][block]
      for (int j = 0; j < 8; ++j) {
        Group group;
        Blocks<kType>::unpack(rows[c + j].group(g), group);
#pragma GCC unroll 8
        for (int i = 0; i < kGroupBlocks / kTogether; ++i)
          hn::Store(group.codes[i], CodesTag(), reinterpret_cast<uint8_t*>(codes[i][j]));
        hn::Store(hn::BitCast(d, group.scales), d, scales[0][j]);
        if constexpr (kHasMinima<kType> || kHasSecondHalves<kType>)
          hn::Store(hn::BitCast(d, group.second), d, scales[1][j]);
      }
      for (int i = 0; i < kGroupBlocks / kTogether; ++i) {
        std::byte* const first = panel + (i * kTogether * groups + g) * 32 * kPanelCols;
        store_columns(codes[i], first + c * 4, 4 * kPanelCols, groups * 32 * kPanelCols);
      }
      const int64_t lane_bytes = groups * kPanelCols * 4;
      store_columns(scales[0], panel + layout.scales() + (g * kPanelCols + c) * 4, lane_bytes, 0);
      if constexpr (kHasMinima<kType> || kHasSecondHalves<kType>)
        store_columns(scales[1], panel + layout.second_scales() + (g * kPanelCols + c) * 4, lane_bytes, 0);
    }
  }
}

// 24 registers of 32, or 8 of 16, hold sums of integers and of floats.
constexpr int kTileRows = HWY_MAX_BYTES >= 64 ? 6 : 2;

// A block's codes, or a half of them, times those of kRows rows.
template <class Dot, BlockType kType, int kRows>
HWY_INLINE void add_words(const std::byte* codes, const std::byte* a, int64_t stride, I32 (&sums)[kRows][2]) {
  const I32Tag d;
  const hn::Repartition<uint8_t, I32Tag> d8;
#pragma GCC unroll 8
  for (int word = 0; word < (kHasSecondHalves<kType> ? 4 : 8); ++word) {
    hn::Vec<decltype(d8)> column[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      column[v] = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(codes + word * kPanelCols * 4) + v * hn::Lanes(d8));
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const auto x = hn::BitCast(d8, hn::Set(d, read<int32_t>(a + i * stride + word * 4)));
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) sums[i][v] = Dot::template add<kIsWide<kType>>(d, sums[i][v], column[v], x);
    }
  }
}

// Adds what a block's codes, or a half of them, contribute.
template <class Dot, BlockType kType, int kRows>
HWY_INLINE void add_part(const std::byte* codes, const std::byte* scales, const std::byte* a, const std::byte* terms,
                         const std::byte* a_scales, int64_t stride, F32 (&sums)[kRows][2]) {
  const I32Tag d;
  const F32Tag f;
  I32 dots[kRows][2];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    dots[i][0] = dots[i][1] = kHasMinima<kType> ? hn::Zero(d) : hn::Set(d, read<int32_t>(terms + i * stride));
  }
  add_words<Dot, kType>(codes, a, stride, dots);
  F32 by[2];
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) by[v] = hn::LoadU(f, reinterpret_cast<const float*>(scales) + v * hn::Lanes(f));
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    const F32 scale = hn::Set(f, read<float>(a_scales + i * stride));
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      sums[i][v] = hn::MulAdd(hn::ConvertTo(f, dots[i][v]), hn::Mul(scale, by[v]), sums[i][v]);
  }
}

template <class Dot, BlockType kType, int kRows>
void many_rows_of(int64_t groups, const std::byte* panel, const std::byte* a, float* tile, const LinesAhead& ahead) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  const UnpackedPanel b{groups};
  const RoundedRow row{groups};
  const int64_t stride = row.bytes();
  Fetcher fetcher(ahead, b.blocks());
  std::fill_n(tile, kRows * kPanelCols, 0.0f);
  for (int64_t c = 0; c < kPanelCols; c += 2 * lanes) {
    for (int64_t block = 0; block < b.blocks();) {
      F32 sums[kRows][2];
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = hn::Zero(f);
#pragma GCC unroll 1
      for (int64_t g = 0; g < groups; ++g, ++block) {
        fetcher.step();
        const std::byte* const codes = panel + block * 32 * kPanelCols + c * 4;
        const std::byte* const scales = panel + b.scales() + (block * kPanelCols + c) * 4;
        const std::byte* const second = panel + b.second_scales() + (block * kPanelCols + c) * 4;
        const std::byte* const terms = a + row.terms() + block * 4;
        const std::byte* const a_scales = a + row.scales() + block * 4;
        add_part<Dot, kType, kRows>(codes, scales, a + block * 32, terms, a_scales, stride, sums);
        if constexpr (kHasSecondHalves<kType>) {
          add_part<Dot, kType, kRows>(codes + 16 * kPanelCols, second, a + block * 32 + 16,
                                      a + row.second_terms() + block * 4, a_scales, stride, sums);
        } else if constexpr (kHasMinima<kType>) {
          F32 by[2];
#pragma GCC unroll 2
          for (int v = 0; v < 2; ++v) by[v] = hn::LoadU(f, reinterpret_cast<const float*>(second) + v * lanes);
#pragma GCC unroll 6
          for (int i = 0; i < kRows; ++i) {
            const F32 term = hn::Set(f, read<float>(terms + i * stride));
#pragma GCC unroll 2
            for (int v = 0; v < 2; ++v) sums[i][v] = hn::MulAdd(term, by[v], sums[i][v]);
          }
        }
      }
      add_sums(sums, tile + c);
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
