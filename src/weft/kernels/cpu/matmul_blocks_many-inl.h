// Products of many rows with weights in blocks: the codes of 32 columns side by side.
#include <algorithm>

#include "weft/kernels/cpu/matmul_blocks_types-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_MANY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Of a block of one column in a panel that vectors multiply.
template <BlockType kType>
constexpr int64_t kBytesOfCodes = kHasNibbles<kType> ? 16 : 32;

// Numbers of a group's eight blocks, [row][block], to out + block * stride.
HWY_INLINE void store_scales(const std::byte* numbers, std::byte* out, int64_t stride) {
  const U32Tag d;
  WordRows rows;
  for (int j = 0; j < kWordRows; ++j) rows[j] = numbers + j * kGroupBlocks * 4;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    Words words[4];
    load_words(rows, half * 16, words);
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) hn::StoreU(words[w], d, reinterpret_cast<uint32_t*>(out + (half * 4 + w) * stride));
  }
}

// kInTiles: codes less their offset, one to a byte; else as many_rows_of takes them, two to a byte where they are so.
// Codes of 8 bits are signed if kWideIsSigned, as tiles have them.
template <BlockType kType, bool kInTiles, bool kWideIsSigned>
void unpack_panel(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  constexpr bool kHasSecond = kHasMinima<kType> || kHasSecondHalves<kType>;
  constexpr int64_t kCodeBytes = kInTiles ? 32 : kBytesOfCodes<kType>;
  // From codes as they come, which are unsigned but for wide ones.
  constexpr uint8_t kLess = kIsWide<kType> ? (kWideIsSigned ? 0 : 0x80) : kInTiles ? Blocks<kType>::kOffset : 0;
  const U32Tag d;
  [[maybe_unused]] const hn::Repartition<uint8_t, U32Tag> d8;
  const F32x8 f;
  const UnpackedPanel layout{groups, kCodeBytes};
  const int64_t lane_codes = groups * kCodeBytes * kPanelCols, lane_scales = groups * 4 * kPanelCols;
  RowOfB<kType> columns[kPanelCols];
  for (int j = 0; j < kPanelCols; ++j)
    columns[j].set(b, col + std::min(j, cols - 1));  // what is too much is not used
  for (int64_t g = 0; g < groups; ++g) {
    for (int c = 0; c < kPanelCols; c += kWordRows) {
      WordRows rows;
      alignas(64) float scales[2][kWordRows][kGroupBlocks];
      for (int j = 0; j < kWordRows; ++j) {
        rows[j] = columns[c + j].group(g);
        Scales first, second = hn::Zero(f);
        Blocks<kType>::scales_of(rows[j], first, second);
        hn::Store(first, f, scales[0][j]);
        if constexpr (kHasSecond) hn::Store(second, f, scales[1][j]);
      }
      std::byte* const codes = panel + (g * kCodeBytes * kPanelCols + c * 4);
      const auto put = [&](int block, int word, Words x) HWY_ATTR {
        if constexpr (kLess != 0) x = hn::BitCast(d, hn::Sub(hn::BitCast(d8, x), hn::Set(d8, kLess)));
        hn::StoreU(x, d, reinterpret_cast<uint32_t*>(codes + block * lane_codes + word * kPanelCols * 4));
      };
      if constexpr (kCodeBytes == 16) {
#pragma GCC unroll 8
        for (int i = 0; i < kGroupBlocks; ++i) {
          Words words[4];
          load_words(rows, Blocks<kType>::at(i), words);
#pragma GCC unroll 4
          for (int w = 0; w < 4; ++w) put(i, w, words[w]);
        }
      } else {
        Blocks<kType>::unpack_words(rows, put);
      }
      const int64_t at = (g * kPanelCols + c) * 4;
      store_scales(reinterpret_cast<const std::byte*>(scales[0]), panel + layout.scales() + at, lane_scales);
      if constexpr (kHasSecond)
        store_scales(reinterpret_cast<const std::byte*>(scales[1]), panel + layout.second_scales() + at, lane_scales);
    }
  }
}

// 24 registers of 32, or 8 of 16, hold sums of integers and of floats.
constexpr int kTileRows = HWY_MAX_BYTES >= 64 ? 6 : 4, kTileVectors = HWY_MAX_BYTES >= 64 ? 2 : 1;

// As many words of codes as 16 bits hold the sums of two products of, before they are widened.
template <BlockType kType>
constexpr int kShortWords = kType == BlockType::q6_k                                ? 2
                            : kType == BlockType::mxfp4 || kType == BlockType::q5_k ? 4
                                                                                    : 8;

// A block's codes, or a half of them, times those of kRows rows.
template <class Dot, BlockType kType, int kRows>
HWY_INLINE void add_words(const std::byte* codes, const std::byte* a, int64_t stride,
                          I32 (&sums)[kRows][kTileVectors]) {
  const I32Tag d;
  const hn::Repartition<uint8_t, I32Tag> d8;
  constexpr int kWords = kHasSecondHalves<kType> ? 4 : 8;
  constexpr bool kSumsShorts = Dot::kSumsShorts && !kIsWide<kType>;
  using Columns = Codes[kTileVectors];
  [[maybe_unused]] I16 shorts[kRows][kTileVectors];
  const auto load = [&](int word, Columns& columns) HWY_ATTR {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v)
      columns[v] = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(codes + word * kPanelCols * 4) + v * hn::Lanes(d8));
  };
  // Words in any order, the n-th of them.
  const auto add = [&](int n, int word, const Columns& columns) HWY_ATTR {
    [[maybe_unused]] const bool is_first = n % kShortWords<kType> == 0,
                                is_last = n % kShortWords<kType> == kShortWords<kType> - 1 || n == kWords - 1;
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const auto x = hn::BitCast(d8, hn::Set(d, read<int32_t>(a + i * stride + word * 4)));
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) {
        if constexpr (kSumsShorts) {
          const I16 some = Dot::shorts(columns[v], x);
          shorts[i][v] = is_first ? some : add_now(shorts[i][v], some);
          if (is_last) sums[i][v] = add_now(sums[i][v], Dot::widened(shorts[i][v]));
        } else {
          sums[i][v] = Dot::template add<kIsWide<kType>>(d, sums[i][v], columns[v], x);
        }
      }
    }
  };
  if constexpr (kBytesOfCodes<kType> == 16) {
    const auto mask = hn::Set(d8, 15);
#pragma GCC unroll 4
    for (int word = 0; word < 4; ++word) {
      Columns both, half;
      load(word, both);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) half[v] = hn::And(both[v], mask);
      add(2 * word, word, half);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v)
        half[v] = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d, both[v]))), mask);
      add(2 * word + 1, 4 + word, half);
    }
  } else {
#pragma GCC unroll 8
    for (int word = 0; word < kWords; ++word) {
      Columns columns;
      load(word, columns);
      add(word, word, columns);
    }
  }
}

// Adds what a block's codes, or a half of them, contribute.
template <class Dot, BlockType kType, int kRows>
HWY_INLINE void add_part(const std::byte* codes, const std::byte* scales, const std::byte* a, const std::byte* terms,
                         const std::byte* a_scales, int64_t stride, F32 (&sums)[kRows][kTileVectors]) {
  const I32Tag d;
  const F32Tag f;
  constexpr bool kHasTerm = !kHasMinima<kType> && !(kIsWide<kType> && Dot::kWideIsSigned);
  I32 dots[kRows][kTileVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    const I32 begin = kHasTerm ? hn::Set(d, read<int32_t>(terms + i * stride)) : hn::Zero(d);
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) dots[i][v] = begin;
  }
  add_words<Dot, kType>(codes, a, stride, dots);
  F32 by[kTileVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kTileVectors; ++v)
    by[v] = hn::LoadU(f, reinterpret_cast<const float*>(scales) + v * hn::Lanes(f));
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    const F32 scale = hn::Set(f, read<float>(a_scales + i * stride));
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v)
      sums[i][v] = hn::MulAdd(hn::ConvertTo(f, dots[i][v]), hn::Mul(scale, by[v]), sums[i][v]);
  }
}

template <class Dot, BlockType kType, int kRows>
void many_rows_of(int64_t groups, const std::byte* panel, const std::byte* a, float* tile, const LinesAhead& ahead) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  constexpr int64_t kCodeBytes = kBytesOfCodes<kType>;
  const UnpackedPanel b{groups, kCodeBytes};
  const RoundedRow row{groups};
  const int64_t stride = row.bytes();
  Fetcher fetcher(ahead, b.blocks());
  std::fill_n(tile, kRows * kPanelCols, 0.0f);
  for (int64_t c = 0; c < kPanelCols; c += kTileVectors * lanes) {
    for (int64_t block = 0; block < b.blocks();) {
      F32 sums[kRows][kTileVectors];
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < kTileVectors; ++v) sums[i][v] = hn::Zero(f);
#pragma GCC unroll 1
      for (int64_t g = 0; g < groups; ++g, ++block) {
        fetcher.step();
        const std::byte* const codes = panel + block * kCodeBytes * kPanelCols + c * 4;
        const std::byte* const scales = panel + b.scales() + (block * kPanelCols + c) * 4;
        const std::byte* const second = panel + b.second_scales() + (block * kPanelCols + c) * 4;
        const std::byte* const terms = a + row.terms() + block * 4;
        const std::byte* const a_scales = a + row.scales() + block * 4;
        add_part<Dot, kType, kRows>(codes, scales, a + block * 32, terms, a_scales, stride, sums);
        if constexpr (kHasSecondHalves<kType>) {
          add_part<Dot, kType, kRows>(codes + 16 * kPanelCols, second, a + block * 32 + 16,
                                      a + row.second_terms() + block * 4, a_scales, stride, sums);
        } else if constexpr (kHasMinima<kType>) {
          F32 by[kTileVectors];
#pragma GCC unroll 2
          for (int v = 0; v < kTileVectors; ++v)
            by[v] = hn::LoadU(f, reinterpret_cast<const float*>(second) + v * lanes);
#pragma GCC unroll 6
          for (int i = 0; i < kRows; ++i) {
            const F32 term = hn::Set(f, read<float>(terms + i * stride));
#pragma GCC unroll 2
            for (int v = 0; v < kTileVectors; ++v) sums[i][v] = hn::NegMulAdd(term, by[v], sums[i][v]);
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
