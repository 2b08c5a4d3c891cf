// Keys and values that are codes of 8 bits with a scale to each head's vector, unpacked to tiles of f32.
#if defined(WEFT_ATTENTION_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_ATTENTION_CODES_INL_H_
#undef WEFT_ATTENTION_CODES_INL_H_
#else
#define WEFT_ATTENTION_CODES_INL_H_
#endif

#include "weft/kernels/cpu/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// A code, and the numbers of a vector of codes in memory.
struct Int8Code {
  uint8_t bits;
  static HWY_INLINE V load(const uint8_t* p) {
    const hn::Rebind<int8_t, decltype(df)> d8;
    return hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p))));
  }
};

struct Fp8Code {
  uint8_t bits;
  // With its sign apart and its exponent moved the code is a float that is 2^-120 of it.
  static HWY_INLINE V load(const uint8_t* p) {
    const hn::Rebind<uint8_t, decltype(df)> d8;
    const auto high = hn::BitCast(di, hn::ShiftLeft<24>(hn::PromoteTo(du, hn::LoadU(d8, p))));
    const auto moved = hn::And(hn::ShiftRight<4>(high), hn::Set(di, int32_t(0x87f00000)));
    return hn::Mul(hn::BitCast(df, moved), hn::Set(df, 0x1p120f));
  }
};

template <class E>
constexpr bool kIsCode = std::is_same_v<E, Int8Code> || std::is_same_v<E, Fp8Code>;

template <class E>
HWY_INLINE float scale_of(const E* row, int64_t at) {
  float scale;
  std::memcpy(&scale, row + at, sizeof(scale));
  return scale;
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

// Calls body(w, words) for each vector of words of the first `dim` elements of a row, of codes, whose scale stands at
// `scale_at`, or of floats.
template <class Op, class E, class Body>
HWY_INLINE void for_each_word_vector(const E* row, int64_t dim, int64_t scale_at, Body&& body) {
  if constexpr (kIsCode<E>) {
    const V scale = hn::Set(df, scale_of(row, scale_at));
    for_each_vector<FloatWords>(
        dim, [&](int64_t w, auto tail) HWY_ATTR { body(w, hn::Mul(load_numbers<tail.value>(row, w, dim), scale)); });
  } else {
    for_each_vector<Op>(
        dim, [&](int64_t w, auto tail) HWY_ATTR { body(w, load_words<Op, tail.value>(row, w * Op::kPerWord, dim)); });
  }
}

// dst[j] = row first + j, for j < count.
template <class E, class Rows>
HWY_INLINE void pack_value_codes(float* dst, const Rows& rows, int64_t first, int64_t count) {
  const int64_t padded = words_of<FloatWords>(rows.dim);
  for (int64_t j = 0; j < count; ++j, dst += padded) {
    for_each_word_vector<FloatWords>(rows[first + j], rows.dim, rows.scale_at,
                                     [&](int64_t e, V x) HWY_ATTR { hn::StoreU(x, df, dst + e); });
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
