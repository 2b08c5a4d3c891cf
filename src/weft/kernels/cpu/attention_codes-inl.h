// Keys and values that are codes of 8 bits with a scale to each head's vector, unpacked to tiles of f32.
#if defined(WEFT_ATTENTION_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_ATTENTION_CODES_INL_H_
#undef WEFT_ATTENTION_CODES_INL_H_
#else
#define WEFT_ATTENTION_CODES_INL_H_
#endif

#include "weft/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

using VI = hn::Vec<decltype(di)>;

// A code; the numbers of a vector of codes, each in the upper 8 bits of a word whose others are anything; and those
// of codes in memory.
struct Int8Code {
  uint8_t bits;
  static HWY_INLINE V numbers(VI words) { return hn::ConvertTo(df, hn::ShiftRight<24>(words)); }
  static HWY_INLINE V load(const uint8_t* p) {
    const hn::Rebind<int8_t, decltype(df)> d8;
    return hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p))));
  }
};

struct Fp8Code {
  uint8_t bits;
  // With its sign apart and its exponent moved the code is a float that is 2^-120 of it.
  static HWY_INLINE V numbers(VI words) {
    const VI moved = hn::And(hn::ShiftRight<4>(words), hn::Set(di, int32_t(0x87f00000)));
    return hn::Mul(hn::BitCast(df, moved), hn::Set(df, 0x1p120f));
  }
  static HWY_INLINE V load(const uint8_t* p) {
    const hn::Rebind<uint8_t, decltype(df)> d8;
    return numbers(hn::BitCast(di, hn::ShiftLeft<24>(hn::PromoteTo(du, hn::LoadU(d8, p)))));
  }
};

template <class E>
constexpr bool kIsCode = std::is_same_v<E, Int8Code> || std::is_same_v<E, Fp8Code>;

// Four neighbouring codes are moved as one word.
struct CodeWords {
  static constexpr int kPerWord = 4;
};

template <class E>
HWY_INLINE float scale_behind(const E* row, int64_t dim) {
  float scale;
  std::memcpy(&scale, row + dim, sizeof(scale));
  return scale;
}

// kWide words from code `e` on of a row of `dim` codes; 0 past its end when it is the tail.
template <bool kTail, class E>
HWY_INLINE V load_code_words(const E* row, int64_t e, int64_t dim) {
  const hn::ScalableTag<uint8_t> d8;
  const auto* p = reinterpret_cast<const uint8_t*>(row) + e;
  if constexpr (!kTail) return hn::BitCast(df, hn::LoadU(d8, p));
  uint8_t padded[kWide * 4] = {};
  if (e < dim) std::memcpy(padded, p, size_t(std::min<int64_t>(dim - e, kWide * 4)));
  return hn::BitCast(df, hn::LoadU(d8, padded));
}

// The numbers of kWide codes from code `e` on, not yet scaled.
template <bool kTail, class E>
HWY_INLINE V load_numbers(const E* row, int64_t e, int64_t dim) {
  const auto* p = reinterpret_cast<const uint8_t*>(row) + e;
  if constexpr (!kTail) return E::load(p);
  uint8_t padded[kWide] = {};
  if (e < dim) std::memcpy(padded, p, size_t(std::min<int64_t>(dim - e, kWide)));
  return E::load(padded);
}

// dst[e][j] = element e of row first + j, for j < kWide, with kStride floats to each e; past count the last row
// again.
template <int kStride, class E, class Rows>
HWY_INLINE void pack_key_codes(float* dst, const Rows& rows, int64_t first, int64_t count) {
  const E* row[kWide];
  float scales[kWide];
  for (int i = 0; i < kWide; ++i) {
    row[i] = rows[first + std::min<int64_t>(i, count - 1)];
    scales[i] = scale_behind(row[i], rows.dim);
  }
  const V scale = hn::LoadU(df, scales);
  for_each_vector<CodeWords>(rows.dim, [&](int64_t w, auto tail) HWY_ATTR {
    V x[kWide];
    HWY_UNROLL(16)
    for (int i = 0; i < kWide; ++i) x[i] = load_code_words<tail.value>(row[i], w * 4, rows.dim);
    transpose(x);
    float* out = dst + w * 4 * kStride;
    HWY_UNROLL(16)
    for (int i = 0; i < kWide; ++i) {
      if (tail.value && (w + i) * 4 >= rows.dim) break;
      const VI codes = hn::BitCast(di, x[i]);
      const auto store = [&](int j, VI high) HWY_ATTR {
        hn::StoreU(hn::Mul(E::numbers(high), scale), df, out + (4 * i + j) * kStride);
      };
      store(0, hn::ShiftLeft<24>(codes));
      store(1, hn::ShiftLeft<16>(codes));
      store(2, hn::ShiftLeft<8>(codes));
      store(3, codes);
    }
  });
}

// dst[j] = row first + j, for j < count.
template <class E, class Rows>
HWY_INLINE void pack_value_codes(float* dst, const Rows& rows, int64_t first, int64_t count) {
  const int64_t padded = words_of<FloatWords>(rows.dim);
  for (int64_t j = 0; j < count; ++j, dst += padded) {
    const E* row = rows[first + j];
    const V scale = hn::Set(df, scale_behind(row, rows.dim));
    for_each_vector<FloatWords>(rows.dim, [&](int64_t e, auto tail) HWY_ATTR {
      hn::StoreU(hn::Mul(load_numbers<tail.value>(row, e, rows.dim), scale), df, dst + e);
    });
  }
}

// As prefetch_rows, with the scales.
template <class Rows>
HWY_INLINE void prefetch_codes(const Rows& rows, int64_t first, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const char* row = reinterpret_cast<const char*>(rows[first + j]);
    for (int64_t at = 0; at < rows.dim; at += 64) __builtin_prefetch(row + at, 0, 2);
    __builtin_prefetch(row + rows.dim + 3, 0, 2);
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
