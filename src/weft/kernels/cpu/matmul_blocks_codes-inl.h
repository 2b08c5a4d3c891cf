// The blocks of each type as unsigned codes and scales, and integer dot products of codes.
#include <array>
#include <cstring>

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
// Halves kStride bytes apart, each kRepeats times, from two vectors: as many as lie within one, and as many behind
// them.
template <int kStride, int kRepeats>
HWY_INLINE auto halves_near(const std::byte* p) {
  constexpr int kHalf = kRepeats == 1 && kStride > 20 ? 2 : 4 / kRepeats;  // in one vector
  const hn::FixedTag<uint16_t, 32> d;
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<uint16_t, 32> places{};
    for (int i = 0; i < 8; ++i) {
      const int at = i / kRepeats % (2 * kHalf);
      places[size_t(i)] = uint16_t(at % kHalf * (kStride / 2) + (at < kHalf ? 0 : 32));
    }
    return places;
  }();
  const auto load = [&](int64_t at) { return hn::LoadU(d, reinterpret_cast<const uint16_t*>(p + at)); };
  hn::Vec<decltype(d)> found;
  found.raw = _mm512_permutex2var_epi16(load(0).raw, hn::Load(d, kPlaces.data()).raw, load(kHalf * kStride).raw);
  return hn::LowerHalf(hn::LowerHalf(found));
}
#endif

// Of blocks kStride bytes apart, each kRepeats times.
template <int kStride, int kRepeats = 1>
HWY_INLINE Scales eight_halves(const std::byte* p) {
  const hn::Rebind<uint16_t, F32x8> d16;
#if HWY_TARGET == HWY_AVX3
  hn::Vec<decltype(d16)> bits = halves_near<kStride, kRepeats>(p);
  if constexpr (kRepeats == 1 && kStride > 20) {
    const hn::FixedTag<uint64_t, 2> d64;
    const auto rest = halves_near<kStride, kRepeats>(p + 4 * kStride);
    bits = hn::BitCast(d16, hn::InterleaveLower(d64, hn::BitCast(d64, bits), hn::BitCast(d64, rest)));
  }
#else
  const auto at = [p](int i) { return read<int16_t>(p + i / kRepeats * kStride); };
  hn::Vec<decltype(d16)> bits;
  bits.raw = _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
#endif
  return hn::PromoteTo(F32x8(), hn::BitCast(hn::Rebind<hwy::float16_t, F32x8>(), bits));
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
// Of 32 codes of 4 bits: the low halves of 16 bytes, then their high halves.
template <int kStride>
HWY_INLINE Codes load_nibbles(const std::byte* p) {
  const hn::Repartition<uint32_t, CodesTag> d32;
  const auto load = [](const std::byte* from) {
    return hn::LoadDup128(U8x32(), reinterpret_cast<const uint8_t*>(from));
  };
  const auto shift = hn::And(hn::Iota(d32, 0), hn::Set(d32, 4));  // by 4 in every second 16 bytes
  const auto both = hn::BitCast(d32, together(load(p), load(kTogether > 1 ? p + kStride : p)));
  return low_bits(hn::BitCast(CodesTag(), hn::Shr(both, shift)), 15);
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

// Of each type: the codes of a group's blocks, one row's as vectors of kTogether blocks, or those of kWordRows rows
// as words, put(block, word, codes); and the scales of a row's blocks, with second: those of the second halves
// (Q6_K), or minus the minima (Q4_K, W4).
using GroupCodes = Codes[kGroupBlocks / kTogether];
template <BlockType kType>
struct Blocks;

template <>
struct Blocks<BlockType::q8_0> {
  static constexpr int64_t kGroupBytes = 8 * 34;
  static constexpr int kOffset = 128;  // codes are stored as signed
  static HWY_INLINE void unpack(const std::byte* p, GroupCodes& codes) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; i += kTogether)
      codes[i / kTogether] = hn::Xor(load_codes<34>(p + 34 * i + 2), hn::Set(CodesTag(), 0x80));
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
  static HWY_INLINE void unpack(const std::byte* p, GroupCodes& codes) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; i += kTogether) codes[i / kTogether] = load_nibbles<18>(p + 18 * i + 2);
  }
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
    const auto u0 = read<uint32_t>(p + 4), u1 = read<uint32_t>(p + 8), u2 = read<uint32_t>(p + 12);
    const auto both = [](uint32_t low, uint32_t high) { return uint64_t(low) | uint64_t(high) << 32; };
    const uint64_t scales = both(u0 & 0x3f3f3f3f, (u2 & 0x0f0f0f0f) | (u0 >> 6 & 0x03030303) << 4);
    const uint64_t minima = both(u1 & 0x3f3f3f3f, (u2 >> 4 & 0x0f0f0f0f) | (u1 >> 6 & 0x03030303) << 4);
    first = hn::Mul(half_everywhere(p), bytes_as_floats(scales));
    second = hn::Neg(hn::Mul(half_everywhere(p + 2), bytes_as_floats(minima)));
  }
  static HWY_INLINE void unpack(const std::byte* p, GroupCodes& codes) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Codes q = load_for_both(p + 16 + 32 * i);
      if constexpr (kTogether == 2) {
        codes[i] = low_bits(shifted_right<0, 4>(q), 15);
      } else {
        codes[2 * i] = low_bits(q, 15);
        codes[2 * i + 1] = low_bits(shifted_right<4>(q), 15);
      }
    }
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

  static HWY_INLINE void unpack(const std::byte* p, GroupCodes& all) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Codes low = load_codes(p + 64 * h), high = load_for_both(p + 128 + 32 * h);
      Codes* const codes = all + kGroupBlocks / kTogether / 2 * h;
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
  static constexpr int kParts = kSize / 32;  // of 32 codes, to a block
  static constexpr int kBytes = 4 + kSize / 2;
  static constexpr int64_t kGroupBytes = kGroupBlocks / kParts * kBytes;
  static constexpr int kOffset = 0;

  // Where the 16 bytes of 32 codes are.
  static constexpr int64_t at(int i) { return int64_t(i) / kParts * kBytes + 4 + i % kParts * 16; }

  static HWY_INLINE void unpack(const std::byte* p, GroupCodes& codes) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; i += kTogether) codes[i / kTogether] = load_nibbles<at(1) - at(0)>(p + at(i));
  }
  template <class Put>
  static HWY_INLINE void unpack_words(const WordRows& rows, Put&& put) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      put_nibbles(rows, at(i), [&](int high, int word, Words x) { put(i, 4 * high + word, x); });
  }
  static HWY_INLINE void scales_of(const std::byte* p, Scales& first, Scales& second) {
    uint64_t zeros = 0;
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i) zeros |= uint64_t(read<uint8_t>(p + i / kParts * kBytes + 2)) << 8 * i;
    first = eight_halves<kBytes, kParts>(p);
    second = hn::Neg(hn::Mul(first, bytes_as_floats(zeros)));
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
