// Rows as vectors of floats and as words, per SIMD target: loads, stores, packing, transposes.
//
// A matrix to multiply is seen as 32-bit words: a word is one f32, or two bf16 neighbours along the summed dim.
#if defined(WEFT_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_ATTENTION_ROWS_INL_H_
#undef WEFT_ATTENTION_ROWS_INL_H_
#else
#define WEFT_ATTENTION_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "weft/kernels/cpu/attention_plan.h"
#include "weft/kernels/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> df;
constexpr hn::ScalableTag<int32_t> di;
constexpr hn::ScalableTag<uint32_t> du;
constexpr hn::ScalableTag<uint16_t> du16;
constexpr hn::Rebind<uint16_t, hn::ScalableTag<float>> du16_half;  // as many as there are floats
constexpr hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> df16_half;
using V = hn::Vec<decltype(df)>;
using VU = hn::Vec<decltype(du)>;
constexpr int kWide = int(hn::MaxLanes(df));  // lanes of a vector
constexpr int kGroup = 2 * kWide;             // lanes of a tile
constexpr int kRows = 8;                      // rows of a tile: 8 x 2 sums fill half of the AVX-512 registers

// ---- words ----

struct FloatWords {
  static constexpr int kPerWord = 1;
  static HWY_INLINE V mul_add(V a, V b, V sum) { return hn::MulAdd(a, b, sum); }
};

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// AVX512_BF16 is no Highway target of its own, hence assembly; used only after asking the CPU.
struct Bf16Words {
  static constexpr int kPerWord = 2;
  static HWY_INLINE V mul_add(V a, V b, V sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
  // 32 lanes rounded to bf16, in order.
  static HWY_INLINE V round(V low, V high) {
    V words;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(words.raw) : "v"(high.raw), "v"(low.raw));
    return words;
  }
  // Word i holds lane i of both.
  static HWY_INLINE V round_pairs(V even, V odd) {
    const VU index = hn::Or(hn::Iota(du, 0), hn::Add(hn::ShiftLeft<16>(hn::Iota(du, 0)), hn::Set(du, 16u << 16)));
    return reordered(round(even, odd), index);
  }
  // Words i and i + 8 hold lanes i and i + 8 of `low` and of `high`.
  static HWY_INLINE V round_halves(V low, V high) {
    const VU lane = hn::Iota(du, 0), first = hn::Add(lane, hn::And(lane, hn::Set(du, 8u)));
    return reordered(round(low, high), hn::Or(first, hn::ShiftLeft<16>(hn::Add(first, hn::Set(du, 8u)))));
  }
  // Word i holds element i, or i + 16, of `low` and of `high`.
  static HWY_INLINE V interleave_lower(V low, V high) { return interleave(low, high, 0); }
  static HWY_INLINE V interleave_upper(V low, V high) { return interleave(low, high, 16); }
  static HWY_INLINE V interleave(V low, V high, uint32_t first) {
    const VU at = hn::Iota(du, first), index = hn::Or(at, hn::ShiftLeft<16>(hn::Add(at, hn::Set(du, 32u))));
    const auto words = [](V x) { return _mm512_castps_si512(x.raw); };
    return V{_mm512_castsi512_ps(_mm512_permutex2var_epi16(words(low), index.raw, words(high)))};
  }
  static HWY_INLINE V reordered(V words, VU index) {
    return V{_mm512_castsi512_ps(_mm512_permutexvar_epi16(index.raw, _mm512_castps_si512(words.raw)))};
  }
};
#endif

// ---- loads and stores of rows ----

HWY_INLINE V promote_bf16(const uint16_t* p) {
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16_half, p))));
}

HWY_INLINE auto round_to_bf16(V x) {
  const VU u = hn::BitCast(du, x);
  const VU rounded = hn::Add(u, hn::Add(hn::Set(du, 0x7fffu), hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u))));
  const VU quiet = hn::Or(u, hn::Set(du, 0x400000u));
  const VU bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
  return hn::DemoteTo(du16_half, hn::BitCast(di, hn::ShiftRight<16>(bits)));
}

HWY_INLINE V promote_f16(const uint16_t* p) {
  return hn::PromoteTo(df, hn::BitCast(df16_half, hn::LoadU(du16_half, p)));
}

HWY_INLINE auto round_to_f16(V x) { return hn::BitCast(du16_half, hn::DemoteTo(df16_half, x)); }

// A vector of words from element `e` on of a row of `dim` elements; 0 past its end when it is the tail.
template <class Op, bool kTail>
HWY_INLINE V load_words(const float* row, int64_t e, int64_t dim) {
  if constexpr (!kTail) return hn::LoadU(df, row + e);
  float padded[kWide] = {};
  if (e < dim) std::memcpy(padded, row + e, size_t(std::min<int64_t>(dim - e, kWide)) * sizeof(float));
  return hn::LoadU(df, padded);
}

template <class Op, bool kTail>
HWY_INLINE V load_words(const BFloat16* row, int64_t e, int64_t dim) {
  constexpr int kElements = kWide * Op::kPerWord;
  const auto* p = reinterpret_cast<const uint16_t*>(row) + e;
  uint16_t padded[kElements];
  if constexpr (kTail) {
    std::memset(padded, 0, sizeof padded);
    if (e < dim) std::memcpy(padded, p, size_t(std::min<int64_t>(dim - e, kElements)) * sizeof(uint16_t));
    p = padded;
  }
  if constexpr (Op::kPerWord == 1) {
    return promote_bf16(p);
  } else {
    return hn::BitCast(df, hn::LoadU(du16, p));
  }
}

template <class Op, bool kTail>
HWY_INLINE V load_words(const Float16* row, int64_t e, int64_t dim) {
  static_assert(Op::kPerWord == 1, "f16 is multiplied in f32");
  const auto* p = reinterpret_cast<const uint16_t*>(row) + e;
  if constexpr (!kTail) return promote_f16(p);
  uint16_t padded[kWide] = {};
  if (e < dim) std::memcpy(padded, p, size_t(std::min<int64_t>(dim - e, kWide)) * sizeof(uint16_t));
  return promote_f16(padded);
}

template <bool kTail>
HWY_INLINE void store_floats(float* row, int64_t e, int64_t dim, V x) {
  if constexpr (!kTail) return hn::StoreU(x, df, row + e);
  float padded[kWide];
  hn::StoreU(x, df, padded);
  if (e < dim) std::memcpy(row + e, padded, size_t(std::min<int64_t>(dim - e, kWide)) * sizeof(float));
}

template <bool kTail, class E>
HWY_INLINE void store_floats(E* row, int64_t e, int64_t dim, V x) {
  auto* p = reinterpret_cast<uint16_t*>(row) + e;
  const auto bits = [&] {
    if constexpr (std::is_same_v<E, BFloat16>)
      return round_to_bf16(x);
    else
      return round_to_f16(x);
  }();
  if constexpr (!kTail) return hn::StoreU(bits, du16_half, p);
  uint16_t padded[kWide];
  hn::StoreU(bits, du16_half, padded);
  if (e < dim) std::memcpy(p, padded, size_t(std::min<int64_t>(dim - e, kWide)) * sizeof(uint16_t));
}

// ---- packing ----

// Words per row of D elements, padded to whole vectors.
template <class Op>
constexpr int64_t words_of(int64_t dim) {
  return round_up(ceil_div(dim, Op::kPerWord), 16);
}

// Calls body(e, tail) for each vector of words of a row: `tail` is a constant that says whether the row may end in
// it.
template <class Op, class Body>
HWY_INLINE void for_each_vector(int64_t dim, Body&& body) {
  const int64_t full = dim / (kWide * Op::kPerWord) * kWide, words = words_of<Op>(dim);
  int64_t w = 0;
  for (; w < full; w += kWide) body(w, std::false_type());
  for (; w < words; w += kWide) body(w, std::true_type());
}

// Asks L2 for rows [first, first + count) ahead of their use: they lie far apart, which defeats hardware prefetchers.
template <class Rows>
HWY_INLINE void prefetch_rows(const Rows& rows, int64_t first, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const char* row = reinterpret_cast<const char*>(rows[first + j]);
    for (int64_t at = 0; at < rows.dim * int64_t(sizeof(*rows[0])); at += 64) __builtin_prefetch(row + at, 0, 2);
  }
}

// dst[j] = the words of row first + j, for j < count.
template <class Op, class E, class Rows>
HWY_INLINE void pack_rows(float* dst, const Rows& rows, int64_t first, int64_t count) {
  const int64_t words = words_of<Op>(rows.dim);
  for (int64_t j = 0; j < count; ++j, dst += words) {
    const E* row = rows[first + j];
    for_each_vector<Op>(rows.dim, [&](int64_t w, auto tail) HWY_ATTR {
      hn::StoreU(load_words<Op, tail.value>(row, w * Op::kPerWord, rows.dim), df, dst + w);
    });
  }
}

// dst[j][e] = the word of elements e of rows first + j * kPerWord and the next; rows past count, up to a multiple of
// kRows, are 0.
template <class Op, class E, class Rows>
HWY_INLINE void pack_pairs(float* dst, const Rows& rows, int64_t first, int64_t count) {
  const int64_t dim = rows.dim, padded_dim = round_up(dim, 16);
  for (int64_t j = 0; j < count; j += Op::kPerWord, dst += padded_dim) {
    const E *even = rows[first + j], *odd = j + 1 < count ? rows[first + j + 1] : even;
    if constexpr (Op::kPerWord == 1) {
      for_each_vector<Op>(dim, [&](int64_t e, auto tail)
                                   HWY_ATTR { hn::StoreU(load_words<Op, tail.value>(even, e, dim), df, dst + e); });
    } else {
      const VU keep = hn::Set(du, j + 1 < count ? ~0u : 0u);
      for_each_vector<Op>(dim, [&](int64_t w, auto tail) HWY_ATTR {
        const int64_t e = 2 * w;
        const V low = load_words<Op, tail.value>(even, e, dim), high = load_words<Op, tail.value>(odd, e, dim);
        const V kept = hn::BitCast(df, hn::And(keep, hn::BitCast(du, high)));
        hn::StoreU(Op::interleave_lower(low, kept), df, dst + e);
        if (!tail.value || e + kWide < padded_dim) hn::StoreU(Op::interleave_upper(low, kept), df, dst + e + kWide);
      });
    }
  }
  const int64_t rest = (round_up(count, kRows) - round_up(count, Op::kPerWord)) / Op::kPerWord;
  std::memset(dst, 0, size_t(rest * padded_dim) * sizeof(float));
}

// Transposes a square of kWide vectors.
HWY_INLINE void transpose(V* x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  constexpr hn::ScalableTag<uint64_t> du64;
  V y[16];
  HWY_UNROLL(4)
  for (int i = 0; i < 16; i += 4) {  // 4 x 4 within each block of 128 bits
    const auto a = hn::BitCast(du64, hn::InterleaveLower(df, x[i], x[i + 1]));
    const auto b = hn::BitCast(du64, hn::InterleaveUpper(df, x[i], x[i + 1]));
    const auto c = hn::BitCast(du64, hn::InterleaveLower(df, x[i + 2], x[i + 3]));
    const auto d = hn::BitCast(du64, hn::InterleaveUpper(df, x[i + 2], x[i + 3]));
    y[i] = hn::BitCast(df, hn::InterleaveLower(du64, a, c));
    y[i + 1] = hn::BitCast(df, hn::InterleaveUpper(du64, a, c));
    y[i + 2] = hn::BitCast(df, hn::InterleaveLower(du64, b, d));
    y[i + 3] = hn::BitCast(df, hn::InterleaveUpper(du64, b, d));
  }
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {  // 4 x 4 blocks
    const V ac_low = hn::ConcatLowerLower(df, y[i + 8], y[i]), ac_high = hn::ConcatUpperUpper(df, y[i + 8], y[i]);
    const V bd_low = hn::ConcatLowerLower(df, y[i + 12], y[i + 4]);
    const V bd_high = hn::ConcatUpperUpper(df, y[i + 12], y[i + 4]);
    x[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(bd_low), ac_low);
    x[i + 4] = hn::OddEvenBlocks(bd_low, hn::SwapAdjacentBlocks(ac_low));
    x[i + 8] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(bd_high), ac_high);
    x[i + 12] = hn::OddEvenBlocks(bd_high, hn::SwapAdjacentBlocks(ac_high));
  }
#else
  float square[kWide][kWide], turned[kWide][kWide];
  for (int i = 0; i < kWide; ++i) hn::StoreU(x[i], df, square[i]);
  for (int i = 0; i < kWide; ++i) {
    for (int j = 0; j < kWide; ++j) turned[j][i] = square[i][j];
  }
  for (int i = 0; i < kWide; ++i) x[i] = hn::LoadU(df, turned[i]);
#endif
}

// Lanes as columns: dst[lane / kGroup][word][lane % kGroup]; past count, up to whole vectors, the last lane again.
template <class Op, class E>
HWY_INLINE void pack_columns(float* dst, RowView<const E> rows, int64_t first, int64_t count) {
  const int64_t words = words_of<Op>(rows.dim);
  for (int64_t lane = 0; lane < count; lane += kWide) {
    float* out = dst + lane / kGroup * words * kGroup + lane % kGroup;
    const E* row[kWide];
    for (int i = 0; i < kWide; ++i) row[i] = rows[first + std::min(lane + i, count - 1)];
    for_each_vector<Op>(rows.dim, [&](int64_t w, auto tail) HWY_ATTR {
      V x[kWide];
      HWY_UNROLL(16)
      for (int i = 0; i < kWide; ++i) x[i] = load_words<Op, tail.value>(row[i], w * Op::kPerWord, rows.dim);
      transpose(x);
      HWY_UNROLL(16)
      for (int i = 0; i < kWide; ++i) hn::StoreU(x[i], df, out + (w + i) * kGroup);
    });
  }
}

// The other way: rows first... = columns src[lane / kGroup][element][lane % kGroup] times factor[lane].
template <class E>
HWY_INLINE void unpack_columns(RowView<E> rows, int64_t first, int64_t count, const float* src, const float* factor) {
  const int64_t padded_dim = round_up(rows.dim, 16);
  for (int64_t lane = 0; lane < count; lane += kWide) {
    const float* in = src + lane / kGroup * padded_dim * kGroup + lane % kGroup;
    const V scale = hn::LoadU(df, factor + lane);
    const int n = int(std::min<int64_t>(kWide, count - lane));
    E* row[kWide];
    for (int i = 0; i < n; ++i) row[i] = rows[first + lane + i];
    for_each_vector<FloatWords>(rows.dim, [&](int64_t e, auto tail) HWY_ATTR {
      V x[kWide];
      HWY_UNROLL(16)
      for (int i = 0; i < kWide; ++i) x[i] = hn::Mul(hn::LoadU(df, in + (e + i) * kGroup), scale);
      transpose(x);
      if (n == kWide) {
        HWY_UNROLL(16)
        for (int i = 0; i < kWide; ++i) store_floats<tail.value>(row[i], e, rows.dim, x[i]);
      } else {
        for (int i = 0; i < n; ++i) store_floats<tail.value>(row[i], e, rows.dim, x[i]);
      }
    });
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
