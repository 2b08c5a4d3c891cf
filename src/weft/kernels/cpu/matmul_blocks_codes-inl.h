// The blocks of each type as unsigned codes and scales, and integer dot products of codes.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "weft/base/ceil_div.h"
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

// ---- codes of one block of 32, or of two neighbours where vectors are that wide; eight numbers of a group's blocks
// ----

constexpr int kTogether = HWY_MAX_BYTES / 32;  // blocks to a vector of codes

using CodesTag = hn::ScalableTag<uint8_t>;
using U8x32 = hn::FixedTag<uint8_t, 32>;
using U32x8 = hn::FixedTag<uint32_t, 8>;
using I32x8 = hn::FixedTag<int32_t, 8>;
using F32x8 = hn::FixedTag<float, 8>;
using Codes = hn::Vec<CodesTag>;
using Ints = hn::Vec<I32x8>;
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
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(codes.raw), "vm"(a.raw));
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

#if HWY_TARGET == HWY_AVX3
using Line = hn::Vec<hn::FixedTag<uint16_t, 32>>;

// 64 bytes, kept in a register: a compiler would read them again for each use, and what reaches over two lines of the
// cache takes two reads.
HWY_INLINE Line load_line(const std::byte* p) {
  Line line = hn::LoadU(hn::FixedTag<uint16_t, 32>(), reinterpret_cast<const uint16_t*>(p));
  asm("" : "+v"(line.raw));
  return line;
}

// Words at the byte offsets that OffsetOf gives for each lane, from the line at kFirst and that at kSecond.
template <int kFirst, int kSecond, class OffsetOf>
HWY_INLINE Line gather_words(Line first, Line second, OffsetOf) {
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<uint16_t, 32> places{};
    for (int i = 0; i < 32; ++i) {
      const int offset = OffsetOf()(i);
      places[size_t(i)] = uint16_t(offset + 2 <= kFirst + 64 ? (offset - kFirst) / 2 : 32 + (offset - kSecond) / 2);
    }
    return places;
  }();
  const auto places = hn::Load(hn::FixedTag<uint16_t, 32>(), kPlaces.data());
  Line words;
  words.raw = _mm512_permutex2var_epi16(first.raw, places.raw, second.raw);
  return words;
}

// The first eight words as halves.
HWY_INLINE Scales halves_of(Line words) {
  const auto eight = hn::LowerHalf(hn::LowerHalf(words));
  return hn::PromoteTo(F32x8(), hn::BitCast(hn::Rebind<hwy::float16_t, F32x8>(), eight));
}
#endif

// Of blocks kStride bytes apart, each kRepeats times.
template <int kStride, int kRepeats = 1>
HWY_INLINE Scales eight_halves(const std::byte* p) {
#if HWY_TARGET == HWY_AVX3
  constexpr int kTake = kRepeats == 1 && kStride > 20 ? 4 : 8;  // at once
  const auto some = [p]<int kBegin>(std::integral_constant<int, kBegin>) HWY_ATTR {
    constexpr int kFirst = kBegin * kStride, kEnd = (kBegin + kTake - 1) / kRepeats * kStride + 2;
    constexpr int kSecond = std::max(kFirst + 64, kEnd - 64);
    constexpr auto kOffset = [](int i) { return (kBegin + i % kTake) / kRepeats * kStride; };
    return gather_words<kFirst, kSecond>(load_line(p + kFirst), load_line(p + kSecond), kOffset);
  };
  Line words = some(std::integral_constant<int, 0>());
  if constexpr (kTake == 4) {
    const hn::FixedTag<uint64_t, 8> d64;
    const auto rest = hn::BitCast(d64, some(std::integral_constant<int, 4>()));
    words = hn::BitCast(hn::FixedTag<uint16_t, 32>(), hn::InterleaveLower(d64, hn::BitCast(d64, words), rest));
  }
  return halves_of(words);
#else
  const auto at = [p](int i) { return read<int16_t>(p + i / kRepeats * kStride); };
  hn::Vec<hn::Rebind<uint16_t, F32x8>> bits;
  bits.raw = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  return hn::PromoteTo(F32x8(), hn::BitCast(hn::Rebind<hwy::float16_t, F32x8>(), bits));
#endif
}

HWY_INLINE Scales bytes_as_floats(uint64_t bytes) {
  const hn::FixedTag<uint64_t, 1> d64;
  const auto eight = hn::BitCast(hn::Rebind<uint8_t, F32x8>(), hn::Set(d64, bytes));
  return hn::ConvertTo(F32x8(), hn::PromoteTo(I32x8(), eight));
}

HWY_INLINE Codes low_bits(Codes x, uint8_t mask) { return hn::And(x, hn::Set(CodesTag(), mask)); }
// The first half of a vector of two blocks by kFirst bits, the second by kSecond. Bits move between bytes: mask them
// afterwards.
template <int kFirst, int kSecond>
HWY_INLINE auto by_halves() {
  constexpr uint32_t a = kFirst, b = kSecond;
  alignas(64) static constexpr uint32_t kBits[16] = {a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b};
  return hn::Load(hn::Repartition<uint32_t, CodesTag>(), kBits);
}
template <int kFirst, int kSecond = kFirst>
HWY_INLINE Codes shifted_right(Codes x) {
  const auto words = hn::BitCast(hn::Repartition<uint32_t, CodesTag>(), x);
  if constexpr (kFirst == kSecond) return hn::BitCast(CodesTag(), hn::ShiftRight<kFirst>(words));
  return hn::BitCast(CodesTag(), hn::Shr(words, by_halves<kFirst, kSecond>()));
}
template <int kFirst, int kSecond = kFirst>
HWY_INLINE Codes shifted_left(Codes x) {
  const auto words = hn::BitCast(hn::Repartition<uint32_t, CodesTag>(), x);
  if constexpr (kFirst == kSecond) return hn::BitCast(CodesTag(), hn::ShiftLeft<kFirst>(words));
  return hn::BitCast(CodesTag(), hn::Shl(words, by_halves<kFirst, kSecond>()));
}

HWY_INLINE Codes together([[maybe_unused]] hn::Vec<U8x32> first, [[maybe_unused]] hn::Vec<U8x32> second) {
#if HWY_MAX_BYTES >= 64
  return hn::Combine(CodesTag(), second, first);
#else
  return first;
#endif
}
HWY_INLINE hn::Vec<U8x32> load_32(const std::byte* p) {
  return hn::LoadU(U8x32(), reinterpret_cast<const uint8_t*>(p));
}

// 32 codes of a block, and where two are in a vector those kStride bytes behind them.
template <int kStride = 32>
HWY_INLINE Codes load_codes(const std::byte* p) {
  if constexpr (kStride == 32) return hn::LoadU(CodesTag(), reinterpret_cast<const uint8_t*>(p));
  return together(load_32(p), load_32(kTogether > 1 ? p + kStride : p));
}
// The same codes twice where two blocks are in a vector.
HWY_INLINE Codes load_for_both(const std::byte* p) {
  const auto codes = load_32(p);
  return together(codes, codes);
}

// ---- blocks of 4-bit codes in pairs of vectors: the first and the second halves of as many blocks as a vector has
// parts of 16 bytes, so that a part of both vectors' products is of one block ----

constexpr int kParts = HWY_MAX_BYTES / 16;
constexpr int kPairs = kGroupBlocks / kParts;

// Which block of a group part `part` of a pair is of: neighbours, or in Q4_K, where bytes have codes of two blocks,
// every second one of the first pairs' and those between them of the others.
template <BlockType kType>
constexpr int block_of_part(int pair, int part) {
  if (kType != BlockType::q4_k) return pair * kParts + part;
  constexpr int kHalf = kPairs / 2;
  return pair % kHalf * 2 * kParts + 2 * part + pair / kHalf;
}

// The parts of 16 bytes at even places of two vectors, or those at odd ones.
template <int kFirst>
HWY_INLINE Codes every_second_part(Codes a, Codes b) {
#if HWY_MAX_BYTES >= 64
  Codes parts;
  parts.raw = _mm512_shuffle_i64x2(a.raw, b.raw, kFirst == 0 ? 0x88 : 0xdd);
  return parts;
#else
  return kFirst == 0 ? hn::ConcatLowerLower(CodesTag(), b, a) : hn::ConcatUpperUpper(CodesTag(), b, a);
#endif
}

// The codes of kParts blocks whose 16 bytes have those of the first half below those of the second.
HWY_INLINE void split_nibbles(Codes both, Codes* pair) {
  pair[0] = low_bits(both, 15);
  pair[1] = low_bits(shifted_right<4>(both), 15);
}

// ---- words of 32 bits of as many rows as a vector has lanes ----

constexpr int kWordRows = HWY_MAX_BYTES / 4;
using WordRows = const std::byte* [kWordRows];
using U32Tag = hn::ScalableTag<uint32_t>;
using Words = hn::Vec<U32Tag>;

// words[i] = word i of the 16 bytes at `at` of all rows.
HWY_INLINE void load_words(const WordRows& rows, int64_t at, Words (&words)[4]) {
  const U32Tag d;
  const hn::RepartitionToWide<U32Tag> d64;
  const auto load = [&](int row) {
    return hn::LoadU(hn::FixedTag<uint32_t, 4>(), reinterpret_cast<const uint32_t*>(rows[row] + at));
  };
  Words lines[4];  // row i, then 4 + i, 8 + i and 12 + i
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#if HWY_MAX_BYTES >= 64
    auto line = _mm512_inserti32x4(_mm512_castsi128_si512(load(i).raw), load(4 + i).raw, 1);
    line = _mm512_inserti32x4(line, load(8 + i).raw, 2);
    lines[i].raw = _mm512_inserti32x4(line, load(12 + i).raw, 3);
#else
    lines[i] = hn::Combine(d, load(4 + i), load(i));
#endif
  }
  const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, lines[0], lines[1]));
  const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, lines[0], lines[1]));
  const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, lines[2], lines[3]));
  const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, lines[2], lines[3]));
  words[0] = hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23));
  words[1] = hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23));
  words[2] = hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23));
  words[3] = hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23));
}

HWY_INLINE Words mask_bytes(Words x, uint32_t mask) { return hn::And(x, hn::Set(U32Tag(), mask * 0x01010101u)); }

// 16 bytes of codes of 4 bits: put(0, word, their low halves), put(1, word, their high halves).
template <class Put>
HWY_INLINE void put_nibbles(const WordRows& rows, int64_t at, Put&& put) {
  Words words[4];
  load_words(rows, at, words);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    put(0, i, mask_bytes(words[i], 15));
    put(1, i, mask_bytes(hn::ShiftRight<4>(words[i]), 15));
  }
}

// Of one row: codes as vectors of kTogether blocks or, where kIsInPairs, as pairs of vectors.
struct Group {
  Codes codes[kGroupBlocks / kTogether];
  Scales scales, second;  // second: of the blocks' second halves (Q6_K), or the minima (Q4_K, W4)
};

// Eight blocks kStride bytes apart, of which the first kSkip bytes begin with a scale and the others are 32 codes.
template <int kStride, int kSkip>
HWY_INLINE void unpack_nibbles(const std::byte* p, Group& g) {
#if HWY_MAX_BYTES >= 64
  constexpr int kLast = kGroupBlocks * kStride - 64;
  static_assert(kStride == kSkip + 16 && 3 * kStride + kSkip + 16 <= 128 && 5 * kStride + kSkip + 16 <= 128);
  const Line first = load_line(p), middle = load_line(p + 64), last = load_line(p + kLast);
  const auto pair = [](Line words, Codes* codes) { split_nibbles(hn::BitCast(CodesTag(), words), codes); };
  pair(gather_words<0, 64>(first, middle, [](int i) { return i / 8 * kStride + kSkip + i % 8 * 2; }), g.codes);
  pair(gather_words<64, kLast>(middle, last, [](int i) { return (4 + i / 8) * kStride + kSkip + i % 8 * 2; }),
       g.codes + 2);
  Line scales = gather_words<0, 64>(first, middle, [](int i) { return i % 8 * kStride; });
  if constexpr (7 * kStride + 2 > 128)  // the last one is not in the first two
    scales = gather_words<0, kLast>(scales, last, [](int i) { return i % 8 == 7 ? 7 * kStride : i % 8 * 2; });
  g.scales = halves_of(scales);
#else
  const auto load = [p](int i) {
    return hn::LoadU(hn::FixedTag<uint8_t, 16>(), reinterpret_cast<const uint8_t*>(p + i * kStride + kSkip));
  };
#pragma GCC unroll 4
  for (int i = 0; i < kGroupBlocks; i += 2) split_nibbles(hn::Combine(CodesTag(), load(i + 1), load(i)), g.codes + i);
  g.scales = eight_halves<kStride>(p);
#endif
}

// Of each type: a group of one row, its scales alone, and the codes of kWordRows rows as put(block, word, codes).
template <BlockType kType>
struct Blocks;

template <>
struct Blocks<BlockType::q8_0> {
  static constexpr int64_t kGroupBytes = 8 * 34;
  static constexpr int kOffset = 128;  // codes are stored as signed
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; i += kTogether)
      g.codes[i / kTogether] = hn::Xor(load_codes<34>(p + 34 * i + 2), hn::Set(CodesTag(), 0x80));
    scales_of(p, g.scales, g.second);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
    Words words[4];
#pragma GCC unroll 16
    for (int i = 0; i < 2 * kGroupBlocks; ++i) {
      load_words(rows, i / 2 * 34 + 2 + i % 2 * 16, words);
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w) put(i / 2, i % 2 * 4 + w, hn::Xor(words[w], hn::Set(U32Tag(), 0x80808080u)));
    }
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) { first = eight_halves<34>(p); }
};

template <>
struct Blocks<BlockType::q4_0> {
  static constexpr int64_t kGroupBytes = 8 * 18;
  static constexpr int kOffset = 8;
  static HWY_INLINE void unpack(const std::byte* p, Group& g) { unpack_nibbles<18, 2>(p, g); }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, 18 * i + 2, [&](int high, int word, Words x) { put(i, 4 * high + word, x); });
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) { first = eight_halves<18>(p); }
};

template <>
struct Blocks<BlockType::q4_k> {
  static constexpr int64_t kGroupBytes = 144;
  static constexpr int kOffset = 0;

  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales& second) {
#if HWY_TARGET == HWY_AVX3
    const hn::FixedTag<uint32_t, 4> d4;
    const hn::ScalableTag<float> d;
    alignas(16) static constexpr uint32_t kLow[4] = {0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f},
                                          kHigh[4] = {0, 0x30303030, 0, 0x30303030}, kShift[4] = {0, 0, 0, 4},
                                          kFirst[4] = {1, 3, 2, 3}, kSecond[4] = {1, 1, 2, 2};
    const auto x = hn::LoadU(d4, reinterpret_cast<const uint32_t*>(p));  // d and dmin, then 12 bytes of 6-bit numbers
    const auto a = hn::TableLookupLanes(x, hn::SetTableIndices(d4, kFirst)),
               b = hn::TableLookupLanes(x, hn::SetTableIndices(d4, kSecond));
    const auto low = hn::And(hn::Shr(a, hn::Load(d4, kShift)), hn::Load(d4, kLow));
    const auto high = hn::And(hn::ShiftRight<2>(b), hn::Load(d4, kHigh));
    const auto bytes = hn::BitCast(hn::FixedTag<uint8_t, 16>(), hn::Or(low, high));
    alignas(32) static constexpr uint8_t kBoth[32] = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1,
                                                      2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3};
    const auto both = hn::TableLookupBytes(
        hn::BitCast(U8x32(), hn::Set(hn::FixedTag<uint32_t, 8>(), read<uint32_t>(p))), hn::Load(U8x32(), kBoth));
    const auto by = hn::PromoteTo(d, hn::BitCast(hn::FixedTag<hwy::float16_t, 16>(), both));
    const auto all = hn::Mul(by, hn::ConvertTo(d, hn::PromoteTo(I32Tag(), bytes)));
    first = hn::LowerHalf(all);
    second = hn::UpperHalf(F32x8(), all);
#else
    const auto u0 = read<uint32_t>(p + 4), u1 = read<uint32_t>(p + 8), u2 = read<uint32_t>(p + 12);
    const auto both = [](uint32_t low, uint32_t high) { return uint64_t(low) | uint64_t(high) << 32; };
    const uint64_t scales = both(u0 & 0x3f3f3f3f, (u2 & 0x0f0f0f0f) | (u0 >> 6 & 0x03030303) << 4);
    const uint64_t minima = both(u1 & 0x3f3f3f3f, (u2 >> 4 & 0x0f0f0f0f) | (u1 >> 6 & 0x03030303) << 4);
    first = hn::Mul(half_everywhere(p), bytes_as_floats(scales));
    second = hn::Mul(half_everywhere(p + 2), bytes_as_floats(minima));
#endif
  }
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
#pragma GCC unroll 2
    for (int i = 0; i < kPairs / 2; ++i) {
      const std::byte* const q = p + 16 + 32 * kParts * i;
      Codes q0 = load_codes(q), q1 = load_codes(q + 16 * kParts);
      asm("" : "+v"(q0.raw), "+v"(q1.raw));  // see load_line
      const Codes halves[2] = {every_second_part<0>(q0, q1), every_second_part<1>(q0, q1)};
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        g.codes[2 * i + h] = low_bits(halves[h], 15);
        g.codes[kPairs + 2 * i + h] = low_bits(shifted_right<4>(halves[h]), 15);
      }
    }
    scales_of(p, g.scales, g.second);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, 16 + 16 * i,
                  [&](int high, int word, Words x) { put(i / 2 * 2 + high, i % 2 * 4 + word, x); });
  }
};

template <>
struct Blocks<BlockType::q6_k> {
  static constexpr int64_t kGroupBytes = 210;
  static constexpr int kOffset = 32;

  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Codes low = load_codes(p + 64 * h), high = load_for_both(p + 128 + 32 * h);
      Codes* const codes = g.codes + kGroupBlocks / kTogether / 2 * h;
      const auto join = [](Codes lows, Codes highs) { return hn::Or(low_bits(lows, 15), low_bits(highs, 0x30)); };
      if constexpr (kTogether == 2) {
        codes[0] = join(low, shifted_left<4, 2>(high));
        codes[1] = join(shifted_right<4>(low), shifted_right<0, 2>(high));
      } else {
        const Codes low1 = load_codes(p + 64 * h + 32);
        codes[0] = join(low, shifted_left<4>(high));
        codes[1] = join(low1, shifted_left<2>(high));
        codes[2] = join(shifted_right<4>(low), high);
        codes[3] = join(shifted_right<4>(low1), shifted_right<2>(high));
      }
    }
    scales_of(p, g.scales, g.second);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
    const auto join = [](Words lows, Words highs) { return hn::Or(mask_bytes(lows, 15), mask_bytes(highs, 0x30)); };
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Words low[4], low1[4], high[4];
      load_words(rows, 64 * (i / 2) + 16 * (i % 2), low);
      load_words(rows, 64 * (i / 2) + 16 * (i % 2) + 32, low1);
      load_words(rows, 128 + 16 * i, high);
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w) {
        const int block = i / 2 * 4, word = i % 2 * 4 + w;
        put(block, word, join(low[w], hn::ShiftLeft<4>(high[w])));
        put(block + 1, word, join(low1[w], hn::ShiftLeft<2>(high[w])));
        put(block + 2, word, join(hn::ShiftRight<4>(low[w]), high[w]));
        put(block + 3, word, join(hn::ShiftRight<4>(low1[w]), hn::ShiftRight<2>(high[w])));
      }
    }
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales& second) {
    const auto halves = hn::LoadU(hn::Rebind<int16_t, I32x8>(), reinterpret_cast<const int16_t*>(p + 192));
    const auto both = hn::PromoteTo(I32x8(), halves);
    const Scales d = half_everywhere(p + 208);
    first = hn::Mul(d, hn::ConvertTo(F32x8(), hn::ShiftRight<24>(hn::ShiftLeft<24>(both))));
    second = hn::Mul(d, hn::ConvertTo(F32x8(), hn::ShiftRight<8>(both)));
  }
};

// A scale as a half, a zero as a byte, another byte, then codes; minus the minimum is minus the scale times the zero.
template <int kSize>
struct W4Blocks {
  static constexpr int kRuns = kSize / 32;  // of 32 codes, to a block
  static constexpr int kBytes = 4 + kSize / 2;
  static constexpr int64_t kGroupBytes = kGroupBlocks / kRuns * kBytes;
  static constexpr int kOffset = 0;

  // Where the 16 bytes of 32 codes are.
  static constexpr int64_t at(int i) { return int64_t(i) / kRuns * kBytes + 4 + i % kRuns * 16; }

  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    if constexpr (kRuns == 1) {
      unpack_nibbles<kBytes, 4>(p, g);
    } else {  // runs follow each other
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) split_nibbles(load_codes(p + at(i * kParts)), g.codes + 2 * i);
      g.scales = eight_halves<kBytes, kRuns>(p);
    }
    g.second = minima(p, g.scales);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, at(i), [&](int high, int word, Words x) { put(i, 4 * high + word, x); });
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales& second) {
    first = eight_halves<kBytes, kRuns>(p);
    second = minima(p, first);
  }

 private:
  static HWY_INLINE Scales minima(const std::byte* p, Scales scales) {
    uint64_t zeros = 0;
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i) zeros |= uint64_t(read<uint8_t>(p + i / kRuns * kBytes + 2)) << 8 * i;
    return hn::Mul(scales, bytes_as_floats(zeros));
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
constexpr bool kIsInPairs =
    kType == BlockType::q4_0 || kType == BlockType::q4_k || kType == BlockType::w4_g32 || kType == BlockType::w4_g128;
template <BlockType kType>
constexpr bool kHasMinima = kType == BlockType::q4_k || kType == BlockType::w4_g32 || kType == BlockType::w4_g128;

// The codes of one of the blocks in a vector.
HWY_INLINE hn::Vec<U8x32> block_of(Codes codes, [[maybe_unused]] int which) {
#if HWY_MAX_BYTES >= 64
  return which == 0 ? hn::LowerHalf(codes) : hn::UpperHalf(U8x32(), codes);
#else
  return codes;
#endif
}

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

// Of every 256 bits the lower half of `first`'s and that of `second`'s, or the upper ones.
template <bool kIsUpper, class V>
HWY_INLINE V halves_of(V first, V second) {
  const hn::DFromV<V> d;
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromV<V>) <= 32) {
    return kIsUpper ? hn::ConcatUpperUpper(d, second, first) : hn::ConcatLowerLower(d, second, first);
  } else {
#if HWY_MAX_BYTES >= 64
    constexpr long long k = kIsUpper ? 2 : 0;  // NOLINT: what the intrinsic takes
    V both;
    both.raw = _mm512_permutex2var_epi64(
        first.raw, _mm512_setr_epi64(k, k + 1, k + 8, k + 9, k + 4, k + 5, k + 12, k + 13), second.raw);
    return both;
#endif
  }
}

// out[i][j] = in[j][i] for 8 x 8 words, of every 256 bits of the vectors.
template <class V>
HWY_INLINE void transpose_8x8(const V (&r)[8], V (&out)[8]) {
  const hn::DFromV<V> d;
  const hn::RepartitionToWide<decltype(d)> d64;
  V quads[2][4];  // word i of rows 0 to 3 and of 4 to 7, and in the upper half word 4 + i
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
    out[i] = halves_of<false>(quads[0][i], quads[1][i]);
    out[4 + i] = halves_of<true>(quads[0][i], quads[1][i]);
  }
}

// Brings lines in, some at each of `steps`. Inlined, since GCC removes calls of functions that only prefetch.
class Fetcher {
 public:
  HWY_INLINE Fetcher(const LinesAhead& ahead, int64_t steps)
      : at_(ahead.from), end_(ahead.from + ahead.count * 64), each_(ceil_div(ahead.count, steps)) {}
  HWY_INLINE void step() {
    for (int64_t i = 0; i < each_ && at_ < end_; ++i, at_ += 64) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const std::byte *at_, *end_;
  int64_t each_;
};

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
