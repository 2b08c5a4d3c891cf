// What products with weights in blocks share: codes and scales in vectors, words of many rows, integer dot products.
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

// Into the second cache, which waits for more lines at once than the first one can: 24 lines of the first keep one
// core of a Zen 4 at 20 GB/s.
template <int64_t kBytes>
HWY_INLINE void fetch(const std::byte* p) {
#pragma GCC unroll 8
  for (int64_t at = 0; at < kBytes; at += 64) __builtin_prefetch(p + at, 0, 2);
}

// ---- dot products: every lane of 32 bits adds four products of codes (u8) and of a (i8) ----

using I16Tag = hn::Repartition<int16_t, CodesTag>;
using I16 = hn::Vec<I16Tag>;

// A sum, now: a compiler that orders many sums anew has no registers for all of their terms.
template <class V>
HWY_INLINE V add_now(V a, V b) {
  V sum = hn::Add(a, b);
  asm("" : "+v"(sum.raw));
  return sum;
}

// The dot product of an extension of this target, asked for at run time. As an instruction and not as an intrinsic,
// because the compiler inlines no function of one target into one of another.
struct DotVnni {
  static constexpr bool kSumsShorts = false, kWideIsSigned = false;

  template <bool kIsWide, class DI, class VU>
  static HWY_INLINE hn::Vec<DI> add(DI, hn::Vec<DI> sum, VU codes, VU a) {
#if HWY_TARGET == HWY_AVX3
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(codes.raw), "vm"(a.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(codes.raw), "xm"(a.raw));
#endif
    return sum;
  }
};

// In two steps, of which the first makes 16 bits of two products and saturates. Codes of 8 bits are too large for it
// and are taken as signed: their magnitudes times a with their signs. Of smaller codes 16 bits hold more than two
// products, so that several vectors share the second step.
struct DotPairs {
  static constexpr bool kSumsShorts = true, kWideIsSigned = true;

  static HWY_INLINE I16 shorts(Codes codes, Codes a) {
    I16 sums;
#if HWY_MAX_BYTES >= 64
    sums.raw = _mm512_maddubs_epi16(codes.raw, a.raw);
#else
    sums.raw = _mm256_maddubs_epi16(codes.raw, a.raw);
#endif
    return sums;
  }
  static HWY_INLINE I32 widened(I16 sums) {
    const I16 ones = hn::Set(I16Tag(), int16_t(1));
    I32 both;
#if HWY_MAX_BYTES >= 64
    both.raw = _mm512_madd_epi16(sums.raw, ones.raw);
#else
    both.raw = _mm256_madd_epi16(sums.raw, ones.raw);
#endif
    return both;
  }

  template <bool kIsWide>
  static HWY_INLINE I32 add(I32Tag, I32 sum, Codes codes, Codes a) {
    if constexpr (!kIsWide) return add_now(sum, widened(shorts(codes, a)));
    const hn::Repartition<int8_t, CodesTag> d8;
    Codes with_signs;
#if HWY_MAX_BYTES >= 64
    with_signs.raw = _mm512_mask_sub_epi8(a.raw, _mm512_movepi8_mask(codes.raw), _mm512_setzero_si512(), a.raw);
#else
    with_signs.raw = _mm256_sign_epi8(a.raw, codes.raw);
#endif
    const Codes magnitudes = hn::BitCast(CodesTag(), hn::Abs(hn::BitCast(d8, codes)));
    return add_now(sum, widened(shorts(magnitudes, with_signs)));
  }
};

// As a Dot takes codes of 8 bits, which are stored as signed.
template <class Dot, class V>
HWY_INLINE V wide_codes(V stored) {
  if constexpr (Dot::kWideIsSigned) return stored;
  const hn::Repartition<uint8_t, hn::DFromV<V>> d8;
  return hn::BitCast(hn::DFromV<V>(), hn::Xor(hn::BitCast(d8, stored), hn::Set(d8, 0x80)));
}

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

// Adds what kRows rows of kVs vectors of columns have summed to their columns of a tile.
template <int kRows, int kVs>
HWY_INLINE void add_sums(const F32 (&sums)[kRows][kVs], float* tile) {
  const F32Tag f;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVs; ++v) {
      float* const total = tile + i * kPanelCols + v * int64_t(hn::Lanes(f));
      hn::StoreU(hn::Add(hn::LoadU(f, total), sums[i][v]), f, total);
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
