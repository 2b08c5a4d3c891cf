// Micro-kernels of products with quantised blocks: rounding of a, decoding of b to codes, integer dot products.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "weft/kernels/cpu/matmul_blocks.h"
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/matmul_blocks_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "weft/kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// ---- 32 bytes: a block of codes, or eight numbers that belong to a group's blocks ----

using U8x32 = hn::FixedTag<uint8_t, 32>;
using I8x32 = hn::FixedTag<int8_t, 32>;
using U32x8 = hn::FixedTag<uint32_t, 8>;
using I32x8 = hn::FixedTag<int32_t, 8>;
using F32x8 = hn::FixedTag<float, 8>;
using Codes = hn::Vec<U8x32>;
using Dots = hn::Vec<I32x8>;
using Scales = hn::Vec<F32x8>;

using I32Tag = hn::ScalableTag<int32_t>;
using I32 = hn::Vec<I32Tag>;

template <class T>
HWY_INLINE T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// ---- dot products: every lane of 32 bits adds four products of codes (u8) and of a (i8) ----

HWY_INLINE __m256i pairs_of(__m256i codes, __m256i a) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, a), _mm256_set1_epi16(1));
}

#if HWY_TARGET == HWY_AVX3
HWY_INLINE __m512i pairs_of(__m512i codes, __m512i a) {
  return _mm512_madd_epi16(_mm512_maddubs_epi16(codes, a), _mm512_set1_epi16(1));
}

// The dot product of an extension of this target, asked for at run time. As an instruction and not as an intrinsic,
// because the compiler inlines no function of one target into one of another.
struct DotVnni {
  template <bool kIsWide, class DI, class VU>
  static HWY_INLINE hn::Vec<DI> add(DI, hn::Vec<DI> sum, VU codes, VU a) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(codes.raw), "v"(a.raw));
    return sum;
  }
};
#endif

// In two steps, of which the first saturates at 16 bits: codes of more than 7 bits are halved before.
struct DotPairs {
  template <bool kIsWide, class DI, class VU>
  static HWY_INLINE hn::Vec<DI> add(DI, hn::Vec<DI> sum, VU codes, VU a) {
    hn::Vec<DI> dot;
    if constexpr (kIsWide) {
      const hn::Repartition<uint8_t, DI> d8;
      const VU half = hn::And(hn::BitCast(d8, hn::ShiftRight<1>(hn::BitCast(hn::Repartition<uint16_t, DI>(), codes))),
                              hn::Set(d8, 0x7f));
      dot.raw = pairs_of(hn::Sub(codes, half).raw, a.raw);
      hn::Vec<DI> rest;
      rest.raw = pairs_of(half.raw, a.raw);
      dot = hn::Add(dot, rest);
    } else {
      dot.raw = pairs_of(codes.raw, a.raw);
    }
    return hn::Add(sum, dot);
  }
};

// ---- b: a group of eight blocks as unsigned codes and scales ----

HWY_INLINE Scales half_everywhere(const std::byte* p) {
  const auto bits = hn::Set(hn::Rebind<uint16_t, F32x8>(), read<uint16_t>(p));
  return hn::PromoteTo(F32x8(), hn::BitCast(hn::Rebind<hwy::float16_t, F32x8>(), bits));
}

template <int64_t kStride>
HWY_INLINE Scales eight_halves(const std::byte* p) {
  const auto at = [p](int i) { return read<int16_t>(p + i * kStride); };
  hn::Vec<hn::Rebind<uint16_t, F32x8>> bits;
  bits.raw = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  return hn::PromoteTo(F32x8(), hn::BitCast(hn::Rebind<hwy::float16_t, F32x8>(), bits));
}

HWY_INLINE Codes load_codes(const std::byte* p) { return hn::LoadU(U8x32(), reinterpret_cast<const uint8_t*>(p)); }
HWY_INLINE Codes low_bits(Codes x, uint8_t mask) { return hn::And(x, hn::Set(U8x32(), mask)); }
// Bits move between bytes: mask them afterwards.
template <int kBits>
HWY_INLINE Codes shifted(Codes x) {
  const hn::FixedTag<uint16_t, 16> d;
  if constexpr (kBits >= 0) return hn::BitCast(U8x32(), hn::ShiftRight<kBits>(hn::BitCast(d, x)));
  return hn::BitCast(U8x32(), hn::ShiftLeft<(kBits < 0 ? -kBits : 0)>(hn::BitCast(d, x)));
}

struct Group {
  Codes codes[kGroupBlocks];
  Scales scales, second;  // second: of the blocks' second halves (Q6_K), or minus the minima (Q4_K)
};

template <BlockType kType>
struct Blocks;

template <>
struct Blocks<BlockType::q8_0> {
  static constexpr int64_t kGroupBytes = 8 * 34;
  static constexpr int kOffset = 128;  // codes are stored as signed
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) g.codes[i] = hn::Xor(load_codes(p + 34 * i + 2), hn::Set(U8x32(), 0x80));
    g.scales = eight_halves<34>(p);
  }
};

template <>
struct Blocks<BlockType::q4_0> {
  static constexpr int64_t kGroupBytes = 8 * 18;
  static constexpr int kOffset = 8;
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    const U32x8 d32;
    const auto shift = hn::And(hn::Iota(d32, 0), hn::Set(d32, 4));  // by 4 in the upper half
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const auto both = hn::BitCast(d32, hn::LoadDup128(U8x32(), reinterpret_cast<const uint8_t*>(p + 18 * i + 2)));
      g.codes[i] = low_bits(hn::BitCast(U8x32(), hn::Shr(both, shift)), 15);
    }
    g.scales = eight_halves<18>(p);
  }
};

template <>
struct Blocks<BlockType::q4_k> {
  static constexpr int64_t kGroupBytes = 144;
  static constexpr int kOffset = 0;

  static HWY_INLINE Scales bytes_as_floats(uint64_t bytes) {
    const hn::FixedTag<uint64_t, 1> d64;
    const auto eight = hn::BitCast(hn::Rebind<uint8_t, F32x8>(), hn::Set(d64, bytes));
    return hn::ConvertTo(F32x8(), hn::PromoteTo(I32x8(), eight));
  }
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    const auto u0 = read<uint32_t>(p + 4), u1 = read<uint32_t>(p + 8), u2 = read<uint32_t>(p + 12);
    const auto both = [](uint32_t low, uint32_t high) { return uint64_t(low) | uint64_t(high) << 32; };
    const uint64_t scales = both(u0 & 0x3f3f3f3f, (u2 & 0x0f0f0f0f) | (u0 >> 6 & 0x03030303) << 4);
    const uint64_t minima = both(u1 & 0x3f3f3f3f, (u2 >> 4 & 0x0f0f0f0f) | (u1 >> 6 & 0x03030303) << 4);
    g.scales = hn::Mul(half_everywhere(p), bytes_as_floats(scales));
    g.second = hn::Neg(hn::Mul(half_everywhere(p + 2), bytes_as_floats(minima)));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Codes q = load_codes(p + 16 + 32 * i);
      g.codes[2 * i] = low_bits(q, 15);
      g.codes[2 * i + 1] = low_bits(shifted<4>(q), 15);
    }
  }
};

template <>
struct Blocks<BlockType::q6_k> {
  static constexpr int64_t kGroupBytes = 210;
  static constexpr int kOffset = 32;

  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Codes low0 = load_codes(p + 64 * h), low1 = load_codes(p + 64 * h + 32);
      const Codes high = load_codes(p + 128 + 32 * h);
      Codes* const codes = g.codes + 4 * h;
      codes[0] = hn::Or(low_bits(low0, 15), low_bits(shifted<-4>(high), 0x30));
      codes[1] = hn::Or(low_bits(low1, 15), low_bits(shifted<-2>(high), 0x30));
      codes[2] = hn::Or(low_bits(shifted<4>(low0), 15), low_bits(high, 0x30));
      codes[3] = hn::Or(low_bits(shifted<4>(low1), 15), low_bits(shifted<2>(high), 0x30));
    }
    const auto halves = hn::LoadU(hn::Rebind<int16_t, I32x8>(), reinterpret_cast<const int16_t*>(p + 192));
    const auto both = hn::PromoteTo(I32x8(), halves);
    const Scales d = half_everywhere(p + 208);
    g.scales = hn::Mul(d, hn::ConvertTo(F32x8(), hn::ShiftRight<24>(hn::ShiftLeft<24>(both))));
    g.second = hn::Mul(d, hn::ConvertTo(F32x8(), hn::ShiftRight<8>(both)));
  }
};

template <BlockType kType>
constexpr bool kIsWide = kType == BlockType::q8_0;
template <BlockType kType>
constexpr bool kHasSecondHalves = kType == BlockType::q6_k;
template <BlockType kType>
constexpr bool kHasMinima = kType == BlockType::q4_k;

// The groups of a row of b, the last of which may be cut short: it is completed with blocks of zeros.
template <BlockType kType>
class RowOfB {
 public:
  static constexpr int64_t kGroupBytes = Blocks<kType>::kGroupBytes;

  HWY_INLINE void set(const BlockMatrix& b, int64_t row) {
    const int64_t bytes = b.row_bytes();
    row_ = static_cast<const std::byte*>(b.blocks.raw()) + row * bytes;
    whole_ = bytes / kGroupBytes;
    if (const int64_t rest = bytes - whole_ * kGroupBytes; rest > 0) {
      std::memset(last_, 0, sizeof(last_));
      std::memcpy(last_, row_ + whole_ * kGroupBytes, size_t(rest));
    }
  }
  HWY_INLINE const std::byte* group(int64_t i) const { return i < whole_ ? row_ + i * kGroupBytes : last_; }

 private:
  const std::byte* row_ = nullptr;
  int64_t whole_ = 0;
  std::byte last_[kGroupBytes];
};

// out[i][j] = in[j][i] for 8 x 8 words.
HWY_INLINE void transpose_8x8(const hn::Vec<U32x8> (&r)[8], hn::Vec<U32x8> (&out)[8]) {
  const U32x8 d;
  const hn::FixedTag<uint64_t, 4> d64;
  hn::Vec<U32x8> quads[2][4];  // word i of rows 0 to 3 and of 4 to 7, and in the upper half word 4 + i
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const auto* const x = r + 4 * h;
    const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, x[0], x[1]));
    const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, x[0], x[1]));
    const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, x[2], x[3]));
    const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, x[2], x[3]));
    quads[h][0] = hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23));
    quads[h][1] = hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23));
    quads[h][2] = hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23));
    quads[h][3] = hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = hn::ConcatLowerLower(d, quads[1][i], quads[0][i]);
    out[4 + i] = hn::ConcatUpperUpper(d, quads[1][i], quads[0][i]);
  }
}

// ---- few rows of a: the lanes of a column are those of a vector ----

// The sums of four lanes each of eight vectors: of their lower halves and of their upper ones.
HWY_INLINE void sum_quads(const Dots (&x)[8], Dots& lower, Dots& upper) {
  const I32x8 d;
  const hn::FixedTag<int64_t, 4> d64;
  Dots quads[2];
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const Dots* const y = x + 4 * h;
    const Dots a = hn::Add(hn::InterleaveLower(d, y[0], y[1]), hn::InterleaveUpper(d, y[0], y[1]));
    const Dots b = hn::Add(hn::InterleaveLower(d, y[2], y[3]), hn::InterleaveUpper(d, y[2], y[3]));
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    quads[h] = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                       hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  }
  lower = hn::ConcatLowerLower(d, quads[1], quads[0]);
  upper = hn::ConcatUpperUpper(d, quads[1], quads[0]);
}

HWY_INLINE Dots load_ints(const std::byte* p) { return hn::LoadU(I32x8(), reinterpret_cast<const int32_t*>(p)); }
HWY_INLINE Scales load_floats(const std::byte* p) { return hn::LoadU(F32x8(), reinterpret_cast<const float*>(p)); }

template <class Dot, BlockType kType>
HWY_INLINE Scales add_group(const Group& g, const RoundedRow& layout, const std::byte* a, int64_t group, Scales sum) {
  const I32x8 d;
  const F32x8 f;
  Dots dots[kGroupBlocks];
#pragma GCC unroll 8
  for (int i = 0; i < kGroupBlocks; ++i)
    dots[i] = Dot::template add<kIsWide<kType>>(d, hn::Zero(d), g.codes[i],
                                                load_codes(a + (group * kGroupBlocks + i) * 32));
  Dots lower, upper;
  sum_quads(dots, lower, upper);
  const int64_t at = group * kGroupBlocks * 4;
  const Scales scales = load_floats(a + layout.scales() + at);
  const std::byte* const terms = a + layout.terms() + at;
  const auto plus = [&](Dots x, Scales by) { return hn::MulAdd(hn::ConvertTo(f, x), hn::Mul(scales, by), sum); };
  if constexpr (kHasSecondHalves<kType>) {
    sum = plus(hn::Add(lower, load_ints(terms)), g.scales);
    return plus(hn::Add(upper, load_ints(a + layout.second_terms() + at)), g.second);
  } else if constexpr (kHasMinima<kType>) {
    sum = plus(hn::Add(lower, upper), g.scales);
    return hn::MulAdd(load_floats(terms), g.second, sum);
  } else {
    return plus(hn::Add(hn::Add(lower, upper), load_ints(terms)), g.scales);
  }
}

template <class Dot, BlockType kType, int kRows>
void few_rows_of(const BlockMatrix& b, int64_t groups, const std::byte* a, int64_t col, int cols, float* tile) {
  const F32x8 f;
  const U32x8 d;
  const RoundedRow layout{groups};
  for (int c = 0; c < cols; c += 8) {
    hn::Vec<U32x8> lanes[kRows][8];  // of each column
    for (int j = 0; j < 8; ++j) {
      Scales sums[kRows];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i] = hn::Zero(f);
      if (c + j < cols) {
        RowOfB<kType> row;
        row.set(b, col + c + j);
        for (int64_t g = 0; g < groups; ++g) {
          Group group;
          Blocks<kType>::unpack(row.group(g), group);
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i)
            sums[i] = add_group<Dot, kType>(group, layout, a + i * layout.bytes(), g, sums[i]);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) lanes[i][j] = hn::BitCast(d, sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      hn::Vec<U32x8> columns[8];
      transpose_8x8(lanes[i], columns);
      Scales total = hn::Zero(f);
#pragma GCC unroll 8
      for (int lane = 0; lane < 8; ++lane) total = hn::Add(total, hn::BitCast(f, columns[lane]));
      hn::StoreU(total, f, tile + i * kPanelCols + c);
    }
  }
}

// ---- many rows of a: the codes of 32 columns side by side ----

template <BlockType kType>
void unpack_panel(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  const U32x8 d;
  const UnpackedPanel layout{groups};
  RowOfB<kType> rows[8];
  for (int c = 0; c < kPanelCols; c += 8) {
    for (int j = 0; j < 8; ++j) rows[j].set(b, col + std::min(c + j, cols - 1));  // what is too much is not used
    for (int64_t g = 0; g < groups; ++g) {
      alignas(64) uint32_t codes[kGroupBlocks][8][8];  // [block][column][four codes each]
      alignas(64) uint32_t scales[2][8][8];            // [which][column][block]
      for (int j = 0; j < 8; ++j) {
        Group group;
        Blocks<kType>::unpack(rows[j].group(g), group);
#pragma GCC unroll 8
        for (int i = 0; i < kGroupBlocks; ++i) hn::Store(hn::BitCast(d, group.codes[i]), d, codes[i][j]);
        hn::Store(hn::BitCast(d, group.scales), d, scales[0][j]);
        if constexpr (kHasMinima<kType> || kHasSecondHalves<kType>)
          hn::Store(hn::BitCast(d, group.second), d, scales[1][j]);
      }
      const auto turn = [&](const uint32_t(&in)[8][8], std::byte* out, int64_t stride) HWY_ATTR {
        hn::Vec<U32x8> lines[8], columns[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) lines[i] = hn::Load(d, in[i]);
        transpose_8x8(lines, columns);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) hn::StoreU(columns[i], d, reinterpret_cast<uint32_t*>(out + i * stride) + c);
      };
      for (int lane = 0; lane < kGroupBlocks; ++lane)
        turn(codes[lane], panel + (lane * groups + g) * 32 * kPanelCols, 4 * kPanelCols);
      const int64_t lane_bytes = groups * kPanelCols * 4;
      turn(scales[0], panel + layout.scales() + g * kPanelCols * 4, lane_bytes);
      if constexpr (kHasMinima<kType> || kHasSecondHalves<kType>)
        turn(scales[1], panel + layout.second_scales() + g * kPanelCols * 4, lane_bytes);
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
void many_rows_of(int64_t groups, const std::byte* panel, const std::byte* a, float* tile) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  const UnpackedPanel b{groups};
  const RoundedRow row{groups};
  const int64_t stride = row.bytes();
  std::fill_n(tile, kRows * kPanelCols, 0.0f);
  for (int64_t c = 0; c < kPanelCols; c += 2 * lanes) {
    for (int64_t block = 0; block < b.blocks();) {
      F32 sums[kRows][2];
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = hn::Zero(f);
#pragma GCC unroll 1
      for (int64_t g = 0; g < groups; ++g, ++block) {
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
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          float* const total = tile + i * kPanelCols + c + v * lanes;
          hn::StoreU(hn::Add(hn::LoadU(f, total), sums[i][v]), f, total);
        }
      }
    }
  }
}

// ---- a ----

// Calls visit(std::integral_constant<BlockType, type>()).
template <class Visit>
HWY_INLINE void with_type(BlockType type, Visit&& visit) {
  switch (type) {
    case BlockType::q8_0: return visit(std::integral_constant<BlockType, BlockType::q8_0>());
    case BlockType::q4_0: return visit(std::integral_constant<BlockType, BlockType::q4_0>());
    case BlockType::q4_k: return visit(std::integral_constant<BlockType, BlockType::q4_k>());
    case BlockType::q6_k: return visit(std::integral_constant<BlockType, BlockType::q6_k>());
  }
}

constexpr int kVectors = 32 / (HWY_MAX_BYTES / 4);  // of a block

// Below it a block counts as zero: the reciprocal of the scale might not be finite.
constexpr float kLeast = 0x1p-100f;

template <class T>
HWY_INLINE void load_block(const T* a, int64_t first, int64_t cols, F32 (&x)[kVectors]) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  if (first >= 0 && first + 32 <= cols) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) x[v] = load(f, a + first + v * lanes);
    return;
  }
  alignas(64) T values[32] = {};
  for (int64_t i = std::max<int64_t>(0, -first); i < std::min<int64_t>(32, cols - first); ++i)
    values[i] = a[first + i];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) x[v] = load(f, values + v * lanes);
}

// Codes and their sums over the first and the second half; gives the scale, which is no number where a's are not.
HWY_INLINE float round_block(const F32 (&x)[kVectors], std::byte* out, int32_t (&sums)[2]) {
  const F32Tag f;
  const I32Tag d;
  const hn::Rebind<int8_t, F32Tag> d8;
  const auto lanes = int64_t(hn::Lanes(f));
  I32 most =
      hn::Zero(d);  // as the bits of magnitudes, which are in the order of numbers, with infinities and NaNs last
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) most = hn::Max(most, hn::BitCast(d, hn::Abs(x[v])));
  const float largest = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(d, most)));
  const bool is_finite = largest <= 0x1.fffffep127f;
  const float inverse = is_finite && largest >= kLeast ? 127 / largest : 0;
  I32 halves[2] = {hn::Zero(d), hn::Zero(d)};
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const I32 codes = inverse == 0 ? hn::Zero(d) : hn::NearestInt(hn::Mul(x[v], hn::Set(f, inverse)));
    hn::StoreU(hn::DemoteTo(d8, codes), d8, reinterpret_cast<int8_t*>(out) + v * lanes);
    I32& half = halves[v / (kVectors / 2)];
    half = hn::Add(half, codes);
  }
  for (int h = 0; h < 2; ++h) sums[h] = hn::GetLane(hn::SumOfLanes(d, halves[h]));
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  return inverse == 0 ? 0 : largest / 127;
}

template <class T, BlockType kType>
void round_row_of(const RoundCall& call, int64_t row, std::byte* out) {
  constexpr int kOffset = Blocks<kType>::kOffset;
  const RoundedRow layout{call.groups};
  const T* const a = static_cast<const T*>(call.a) + row * call.b->cols;
  for (int64_t block = 0; block < layout.blocks(); ++block) {
    const int64_t lane = block % kGroupBlocks, group = block / kGroupBlocks;
    const int64_t at = call.lane_by_lane ? lane * call.groups + group : block;
    F32 x[kVectors];
    load_block(a, block * 32 - call.b->skip, call.b->cols, x);
    int32_t sums[2];
    const float scale = round_block(x, out + at * 32, sums);
    const auto put = [&](int64_t where, auto value) { std::memcpy(out + where + at * 4, &value, 4); };
    put(layout.scales(), scale);
    if constexpr (kHasMinima<kType>)
      put(layout.terms(), scale * float(sums[0] + sums[1]));
    else if constexpr (kHasSecondHalves<kType>)
      put(layout.terms(), -kOffset * sums[0]), put(layout.second_terms(), -kOffset * sums[1]);
    else
      put(layout.terms(), -kOffset * (sums[0] + sums[1]));
  }
}

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
