// The blocks of each type: a group of eight as unsigned codes and scales, and the rows of a matrix of them.
#include <cstring>
#include <type_traits>

#include "weft/kernels/cpu/matmul_blocks_codes-inl.h"
#include "weft/tensor/float4.h"
#include "weft/tensor/ggml_block_layout.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_TYPES_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_TYPES_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_TYPES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Of one row: codes (of 8 bits as they are stored) as vectors of kTogether blocks or, where kIsInPairs, as pairs of
// vectors.
struct Group {
  Codes codes[kGroupBlocks / kTogether];
  Scales scales, second;  // second: of the blocks' second halves (Q6_K), or the minima (Q4_K, Q5_K, W4)
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
    for (int i = 0; i < kGroupBlocks; i += kTogether) g.codes[i / kTogether] = load_codes<34>(p + 34 * i + 2);
    scales_of(p, g.scales, g.second);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
    Words words[4];
#pragma GCC unroll 16
    for (int i = 0; i < 2 * kGroupBlocks; ++i) {
      load_words(rows, i / 2 * 34 + 2 + i % 2 * 16, words);
#pragma GCC unroll 4
      for (int w = 0; w < 4; ++w) put(i / 2, i % 2 * 4 + w, words[w]);
    }
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) { first = eight_halves<34>(p); }
};

template <>
struct Blocks<BlockType::q4_0> {
  static constexpr int64_t kGroupBytes = 8 * 18;
  static constexpr int kOffset = 8;
  static constexpr int64_t at(int i) { return 18 * i + 2; }  // where the 16 bytes of 32 codes are
  static HWY_INLINE void unpack(const std::byte* p, Group& g) { unpack_nibbles<18, 2>(p, g); }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, at(i), [&](int high, int word, Words x) { put(i, 4 * high + word, x); });
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) { first = eight_halves<18>(p); }
};

// Codes are those of twice the numbers of E2M1, and scales halves of powers of two.
template <>
struct Blocks<BlockType::mxfp4> {
  static constexpr int kBytes = 17, kOffset = 12;
  static constexpr int64_t kGroupBytes = 8 * kBytes;

  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    const auto load = [p](int i) {
      return hn::LoadU(hn::FixedTag<uint8_t, 16>(), reinterpret_cast<const uint8_t*>(p + i * kBytes + 1));
    };
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i) {
      Codes both;
#if HWY_MAX_BYTES >= 64
      both.raw = _mm512_inserti32x4(_mm512_castsi128_si512(load(4 * i).raw), load(4 * i + 1).raw, 1);
      both.raw = _mm512_inserti32x4(both.raw, load(4 * i + 2).raw, 2);
      both.raw = _mm512_inserti32x4(both.raw, load(4 * i + 3).raw, 3);
#else
      both = hn::Combine(CodesTag(), load(2 * i + 1), load(2 * i));
#endif
      split_nibbles(both, g.codes + 2 * i);
      g.codes[2 * i] = numbers_of(g.codes[2 * i]), g.codes[2 * i + 1] = numbers_of(g.codes[2 * i + 1]);
    }
    scales_of(p, g.scales, g.second);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, i * kBytes + 1, [&](int high, int word, Words x) HWY_ATTR {
        put(i, 4 * high + word, hn::BitCast(U32Tag(), numbers_of(hn::BitCast(CodesTag(), x))));
      });
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) {
    uint64_t exponents = 0;
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i) exponents |= uint64_t(read<uint8_t>(p + i * kBytes)) << 8 * i;
    const auto eight = hn::BitCast(hn::Rebind<uint8_t, F32x8>(), hn::Set(hn::FixedTag<uint64_t, 1>(), exponents));
    const auto powers = hn::ShiftLeft<23>(hn::PromoteTo(U32x8(), eight));
    first = hn::Mul(hn::BitCast(F32x8(), powers), hn::Set(F32x8(), 0.5f));
  }

 private:
  static HWY_INLINE Codes numbers_of(Codes codes) {
    alignas(16) static constexpr auto kNumbers = [] {
      std::array<uint8_t, 16> numbers{};
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = uint8_t(kTwiceE2M1[i] + kOffset);
      return numbers;
    }();
    return hn::TableLookupBytes(hn::LoadDup128(CodesTag(), kNumbers.data()), codes);
  }
};

// Codes of four bits, of whose bytes each has two blocks' of a group; of five, the fifth ones lie before them, a bit
// of each block in a byte.
template <bool kHasFifthBits>
struct KBlocks {
  static constexpr int kFifthBits = 16, kCodes = kFifthBits + (kHasFifthBits ? 32 : 0);  // where they are
  static constexpr int64_t kGroupBytes = kCodes + 128;
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
      const std::byte* const q = p + kCodes + 32 * kParts * i;
      Codes q0 = load_codes(q), q1 = load_codes(q + 16 * kParts);
      asm("" : "+v"(q0.raw), "+v"(q1.raw));  // see load_line
      const Codes halves[2] = {every_second_part<0>(q0, q1), every_second_part<1>(q0, q1)};
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        g.codes[2 * i + h] = low_bits(halves[h], 15);
        g.codes[kPairs + 2 * i + h] = low_bits(shifted_right<4>(halves[h]), 15);
        if constexpr (kHasFifthBits) {
          const auto all = hn::LoadDup128(CodesTag(), reinterpret_cast<const uint8_t*>(p + kFifthBits + 16 * h));
          add_fifth_bits(g.codes[2 * i + h], all, i, 0);
          add_fifth_bits(g.codes[kPairs + 2 * i + h], all, i, 1);
        }
      }
    }
    scales_of(p, g.scales, g.second);
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      [[maybe_unused]] Words fifths[4];
      if constexpr (kHasFifthBits) load_words(rows, kFifthBits + 16 * half, fifths);
#pragma GCC unroll 4
      for (int i = 0; i < kGroupBlocks; i += 2)
        put_nibbles(rows, kCodes + 16 * (i + half), [&](int high, int word, Words x) HWY_ATTR {
          if constexpr (kHasFifthBits)
            x = hn::Or(x, hn::ShiftLeft<4>(mask_bytes(hn::ShiftRightSame(fifths[word], i + high), 1)));
          put(i + high, half * 4 + word, x);
        });
    }
  }

 private:
  // To codes of the even blocks, or of the odd ones, of vector i of them.
  static HWY_INLINE void add_fifth_bits(Codes& codes, Codes all, int i, int is_odd) {
    alignas(64) static constexpr auto kBits = [] {
      std::array<std::array<std::array<uint8_t, 16 * kParts>, 2>, kPairs / 2> bits{};
      for (int v = 0; v < kPairs / 2; ++v)
        for (int odd = 0; odd < 2; ++odd)
          for (int b = 0; b < 16 * kParts; ++b)
            bits[size_t(v)][size_t(odd)][size_t(b)] = uint8_t(1 << (2 * (kParts * v + b / 16) + odd));
      return bits;
    }();
    const CodesTag d;
    const auto is_set = hn::TestBit(all, hn::Load(d, kBits[size_t(i)][size_t(is_odd)].data()));
    codes = hn::Or(codes, hn::IfThenElseZero(is_set, hn::Set(d, 16)));
  }
};
template <>
struct Blocks<BlockType::q4_k> : KBlocks<false> {};
template <>
struct Blocks<BlockType::q5_k> : KBlocks<true> {};

// Entries of ggml::kIq4Table, which take 8 bits.
template <int kStride, int kCodes>
struct Iq4Codes {
  static constexpr int kOffset = 128;  // codes are stored as signed
  static constexpr int64_t kGroupBytes = kStride > 16 ? 8 * kStride : 136;

  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, i * kStride + kCodes, [&](int high, int word, Words x) HWY_ATTR {
        put(i, 4 * high + word, hn::BitCast(U32Tag(), entries_of(hn::BitCast(CodesTag(), x))));
      });
  }

 protected:
  static HWY_INLINE void unpack_codes(const std::byte* p, Group& g) {
    const hn::FixedTag<uint8_t, 16> d;
    const auto block = [&](int i) HWY_ATTR {
      const auto bytes = hn::LoadU(d, reinterpret_cast<const uint8_t*>(p + i * kStride + kCodes));
      return hn::Combine(U8x32(), hn::ShiftRight<4>(bytes), hn::And(bytes, hn::Set(d, 15)));
    };
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; i += kTogether)
      g.codes[i / kTogether] = entries_of(together(block(i), block(kTogether > 1 ? i + 1 : i)));
  }

 private:
  static HWY_INLINE Codes entries_of(Codes codes) {
    alignas(16) static constexpr auto kEntries = [] {
      std::array<uint8_t, 16> entries{};
      for (size_t i = 0; i < entries.size(); ++i) entries[i] = uint8_t(ggml::kIq4Table[i]);
      return entries;
    }();
    return hn::TableLookupBytes(hn::LoadDup128(CodesTag(), kEntries.data()), codes);
  }
};

template <>
struct Blocks<BlockType::iq4_nl> : Iq4Codes<18, 2> {
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    unpack_codes(p, g);
    scales_of(p, g.scales, g.second);
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) { first = eight_halves<18>(p); }
};

template <>
struct Blocks<BlockType::iq4_xs> : Iq4Codes<16, 8> {
  static HWY_INLINE void unpack(const std::byte* p, Group& g) {
    unpack_codes(p, g);
    scales_of(p, g.scales, g.second);
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales&) {
    // Scale j is the nibble at 4 j below the pair of bits at 2 j.
    alignas(32) static constexpr uint32_t kFours[8] = {0, 4, 8, 12, 16, 20, 24, 28},
                                          kTwos[8] = {0, 2, 4, 6, 8, 10, 12, 14};
    const U32x8 d;
    const auto lows = hn::And(hn::Shr(hn::Set(d, read<uint32_t>(p + 4)), hn::Load(d, kFours)), hn::Set(d, 15u));
    const auto highs = hn::And(hn::Shr(hn::Set(d, read<uint16_t>(p + 2)), hn::Load(d, kTwos)), hn::Set(d, 3u));
    const auto scales = hn::BitCast(I32x8(), hn::Or(lows, hn::ShiftLeft<4>(highs)));
    first = hn::Mul(half_everywhere(p), hn::ConvertTo(F32x8(), hn::Sub(scales, hn::Set(I32x8(), 32))));
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
constexpr bool kIsWide = kType == BlockType::q8_0 || kType == BlockType::iq4_nl || kType == BlockType::iq4_xs;
template <BlockType kType>
constexpr bool kHasSecondHalves = kType == BlockType::q6_k;
// 16 bytes have the codes of a block's first half below those of its second.
template <BlockType kType>
constexpr bool kHasNibbles = kType == BlockType::q4_0 || kType == BlockType::w4_g32 || kType == BlockType::w4_g128;
// They have those of two blocks.
template <BlockType kType>
constexpr bool kHasBothBlocks = kType == BlockType::q4_k || kType == BlockType::q5_k;
template <BlockType kType>
constexpr bool kIsInPairs = kHasNibbles<kType> || kHasBothBlocks<kType> || kType == BlockType::mxfp4;
template <BlockType kType>
constexpr bool kHasMinima = kHasBothBlocks<kType> || kType == BlockType::w4_g32 || kType == BlockType::w4_g128;

// Which block of a group part `part` of a pair is of: neighbours, or where bytes have codes of two blocks every
// second one of the first pairs' and those between them of the others.
template <BlockType kType>
constexpr int block_of_part(int pair, int part) {
  if (!kHasBothBlocks<kType>) return pair * kParts + part;
  constexpr int kHalf = kPairs / 2;
  return pair % kHalf * 2 * kParts + 2 * part + pair / kHalf;
}

// The groups of a row of b, the last of which may be cut short: it is completed with blocks of zeros.
template <BlockType kType>
class RowOfB {
 public:
  static constexpr int64_t kGroupBytes = Blocks<kType>::kGroupBytes;

  HWY_INLINE void set(const BlockMatrix& b, int64_t row) {
    const int64_t bytes = b.row_bytes();
    row_ = b.row(row);
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

// Calls visit(std::integral_constant<BlockType, type>()) for a type whose math is that of codes.
template <class Visit>
HWY_INLINE void with_type(BlockType type, Visit&& visit) {
  switch (type) {
    case BlockType::q8_0: return visit(std::integral_constant<BlockType, BlockType::q8_0>());
    case BlockType::q4_0: return visit(std::integral_constant<BlockType, BlockType::q4_0>());
    case BlockType::q4_k: return visit(std::integral_constant<BlockType, BlockType::q4_k>());
    case BlockType::q5_k: return visit(std::integral_constant<BlockType, BlockType::q5_k>());
    case BlockType::q6_k: return visit(std::integral_constant<BlockType, BlockType::q6_k>());
    case BlockType::iq4_nl: return visit(std::integral_constant<BlockType, BlockType::iq4_nl>());
    case BlockType::iq4_xs: return visit(std::integral_constant<BlockType, BlockType::iq4_xs>());
    case BlockType::mxfp4: return visit(std::integral_constant<BlockType, BlockType::mxfp4>());
    case BlockType::w4_g32: return visit(std::integral_constant<BlockType, BlockType::w4_g32>());
    case BlockType::w4_g128: return visit(std::integral_constant<BlockType, BlockType::w4_g128>());
    default: return;
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
