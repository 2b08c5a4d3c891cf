// The blocks of each type as unsigned codes and scales, and integer dot products of codes.
#include <cstring>

#include "hwy/highway.h"
#include "weft/kernels/cpu/matmul_blocks.h"
#include "weft/kernels/cpu/simd_math-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_CODES_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_CODES_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_CODES_INL_H_
#endif

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

// Of blocks kStride bytes apart, each kRepeats times.
template <int kStride, int kRepeats = 1>
HWY_INLINE Scales eight_halves(const std::byte* p) {
  const auto at = [p](int i) { return read<int16_t>(p + i / kRepeats * kStride); };
  hn::Vec<hn::Rebind<uint16_t, F32x8>> bits;
  bits.raw = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  return hn::PromoteTo(F32x8(), hn::BitCast(hn::Rebind<hwy::float16_t, F32x8>(), bits));
}

HWY_INLINE Scales bytes_as_floats(uint64_t bytes) {
  const hn::FixedTag<uint64_t, 1> d64;
  const auto eight = hn::BitCast(hn::Rebind<uint8_t, F32x8>(), hn::Set(d64, bytes));
  return hn::ConvertTo(F32x8(), hn::PromoteTo(I32x8(), eight));
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

// 32 codes of 4 bits: the low halves of 16 bytes, then their high halves.
HWY_INLINE Codes load_nibbles(const std::byte* p) {
  const U32x8 d32;
  const auto shift = hn::And(hn::Iota(d32, 0), hn::Set(d32, 4));  // by 4 in the upper half
  const auto both = hn::BitCast(d32, hn::LoadDup128(U8x32(), reinterpret_cast<const uint8_t*>(p)));
  return low_bits(hn::BitCast(U8x32(), hn::Shr(both, shift)), 15);
}

struct Group {
  Codes codes[kGroupBlocks];
  Scales scales, second;  // second: of the blocks' second halves (Q6_K), or minus the minima (Q4_K, W4)
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
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) g.codes[i] = load_nibbles(p + 18 * i + 2);
    g.scales = eight_halves<18>(p);
  }
};

template <>
struct Blocks<BlockType::q4_k> {
  static constexpr int64_t kGroupBytes = 144;
  static constexpr int kOffset = 0;

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

// A scale as a half, a zero as a byte, another byte, then codes; minus the minimum is minus the scale times the zero.
template <int kSize>
struct W4Blocks {
  static constexpr int kParts = kSize / 32;  // of 32 codes, to a block
  static constexpr int kBytes = 4 + kSize / 2;
  static constexpr int64_t kGroupBytes = kGroupBlocks / kParts * kBytes;
  static constexpr int kOffset = 0;

  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    uint64_t zeros = 0;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const std::byte* const block = p + i / kParts * kBytes;
      g.codes[i] = load_nibbles(block + 4 + i % kParts * 16);
      zeros |= uint64_t(read<uint8_t>(block + 2)) << 8 * i;
    }
    g.scales = eight_halves<kBytes, kParts>(p);
    g.second = hn::Neg(hn::Mul(g.scales, bytes_as_floats(zeros)));
  }
};
template <>
struct Blocks<BlockType::w4_g32> : W4Blocks<32> {};
template <>
struct Blocks<BlockType::w4_g128> : W4Blocks<128> {};

template <BlockType kType>
constexpr bool kIsWide = kType == BlockType::q8_0;
template <BlockType kType>
constexpr bool kHasSecondHalves = kType == BlockType::q6_k;
template <BlockType kType>
constexpr bool kHasMinima = kType == BlockType::q4_k || kType == BlockType::w4_g32 || kType == BlockType::w4_g128;

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

// Adds what kRows rows of two vectors of columns have summed to their columns of a tile.
template <int kRows>
HWY_INLINE void add_sums(const F32 (&sums)[kRows][2], float* tile) {
  const F32Tag f;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* const total = tile + i * kPanelCols + v * int64_t(hn::Lanes(f));
      hn::StoreU(hn::Add(hn::LoadU(f, total), sums[i][v]), f, total);
    }
  }
}

// Calls visit(std::integral_constant<BlockType, type>()) for a type whose math is that of codes.
template <class Visit>
HWY_INLINE void with_type(BlockType type, Visit&& visit) {
  switch (type) {
    case BlockType::q8_0: return visit(std::integral_constant<BlockType, BlockType::q8_0>());
    case BlockType::q4_0: return visit(std::integral_constant<BlockType, BlockType::q4_0>());
    case BlockType::q4_k: return visit(std::integral_constant<BlockType, BlockType::q4_k>());
    case BlockType::q6_k: return visit(std::integral_constant<BlockType, BlockType::q6_k>());
    case BlockType::w4_g32: return visit(std::integral_constant<BlockType, BlockType::w4_g32>());
    case BlockType::w4_g128: return visit(std::integral_constant<BlockType, BlockType::w4_g128>());
    default: return;
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
