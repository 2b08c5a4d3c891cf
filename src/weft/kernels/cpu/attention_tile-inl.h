// What the tiles of attention are made of, per SIMD target: products, exp, transposes, packing, dropout.
//
// A matrix to multiply is seen as 32-bit words: a word is one f32, or two bf16 neighbours along the summed dim.
#if defined(WEFT_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_ATTENTION_TILE_INL_H_
#undef WEFT_ATTENTION_TILE_INL_H_
#else
#define WEFT_ATTENTION_TILE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "weft/base/philox.h"
#include "weft/kernels/cpu/attention_plan.h"

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
constexpr float kNoMaximum = -1e30f;          // below any score, and finite so that differences are
constexpr float kLog2E = 1.44269504088896341f;

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

struct Nothing {
  HWY_INLINE void operator()() const {}
};

// acc[c][r] += sum over i < k of a[r * a_row + i * a_k] * b[i * b_k + c * kWide + lane], in the order of i. Calls
// meanwhile() for each of them.
template <class Op, int kCols, int kCount = kRows, class Meanwhile = Nothing>
HWY_INLINE void multiply(const float* HWY_RESTRICT a, int64_t a_row, int64_t a_k, const float* HWY_RESTRICT b,
                         int64_t b_k, int64_t k, V (*acc)[kCount], Meanwhile&& meanwhile = {}) {
  V sum[kCols][kCount];
  HWY_UNROLL(4)
  for (int c = 0; c < kCols; ++c) {
    HWY_UNROLL(8)
    for (int r = 0; r < kCount; ++r) sum[c][r] = acc[c][r];
  }
  for (int64_t i = 0; i < k; ++i, a += a_k, b += b_k) {
    meanwhile();
    V column[kCols];
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) column[c] = hn::LoadU(df, b + c * kWide);
    HWY_UNROLL(8)
    for (int r = 0; r < kCount; ++r) {
      const V row = hn::Set(df, a[r * a_row]);
      HWY_UNROLL(4)
      for (int c = 0; c < kCols; ++c) sum[c][r] = Op::mul_add(row, column[c], sum[c][r]);
    }
  }
  HWY_UNROLL(4)
  for (int c = 0; c < kCols; ++c) {
    HWY_UNROLL(8)
    for (int r = 0; r < kCount; ++r) acc[c][r] = sum[c][r];
  }
}

// One column of vectors: even and odd terms apart, so that enough sums are in flight.
template <class Op>
HWY_INLINE void multiply_single(const float* HWY_RESTRICT a, int64_t a_row, int64_t a_k, const float* HWY_RESTRICT b,
                                int64_t b_k, int64_t k, V* acc) {
  V sum[2][kRows];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) sum[0][r] = acc[r], sum[1][r] = hn::Zero(df);
  const float* HWY_RESTRICT odd = a + a_k;  // a pointer of its own, or the addresses of all rows fill the registers
  int64_t i = 0;
  for (; i + 2 <= k; i += 2, a += 2 * a_k, odd += 2 * a_k, b += 2 * b_k) {
    const V b0 = hn::LoadU(df, b), b1 = hn::LoadU(df, b + b_k);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      sum[0][r] = Op::mul_add(hn::Set(df, a[r * a_row]), b0, sum[0][r]);
      sum[1][r] = Op::mul_add(hn::Set(df, odd[r * a_row]), b1, sum[1][r]);
    }
  }
  if (i < k) {
    const V b0 = hn::LoadU(df, b);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) sum[0][r] = Op::mul_add(hn::Set(df, a[r * a_row]), b0, sum[0][r]);
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) acc[r] = hn::Add(sum[0][r], sum[1][r]);
}

// y rows += a b, for `rows` rows (a multiple of kRows) and `cols` columns (a multiple of kWide) of y.
template <class Op>
HWY_INLINE void multiply_accumulate(float* HWY_RESTRICT y, int64_t ldy, int64_t cols, const float* HWY_RESTRICT a,
                                    int64_t a_row, int64_t a_k, const float* HWY_RESTRICT b, int64_t b_k, int64_t k) {
  int64_t c = 0;
  for (; c + kGroup <= cols; c += kGroup) {
    V acc[2][kRows];
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      acc[0][r] = hn::LoadU(df, y + r * ldy + c);
      acc[1][r] = hn::LoadU(df, y + r * ldy + c + kWide);
    }
    multiply<Op, 2>(a, a_row, a_k, b + c, b_k, k, acc);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      hn::StoreU(acc[0][r], df, y + r * ldy + c);
      hn::StoreU(acc[1][r], df, y + r * ldy + c + kWide);
    }
  }
  if (c < cols) {
    V acc[kRows];
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) acc[r] = hn::LoadU(df, y + r * ldy + c);
    multiply_single<Op>(a, a_row, a_k, b + c, b_k, k, acc);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) hn::StoreU(acc[r], df, y + r * ldy + c);
  }
}

// ---- exp ----

// 2^x for x <= 127; exactly 0 from -127 down. The polynomials are minimax in relative error over [-1/2, 1/2] with
// constant term 1: 9e-8 of degree 5, 3e-6 of degree 4, which is enough before rounding to bf16.
template <class Op>
HWY_INLINE V exp2(V x) {
  const V magic = hn::Set(df, 12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  x = hn::Max(hn::Set(df, -127.0f), x);      // in this order a NaN stays
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  V p;
  if constexpr (Op::kPerWord == 1) {
    p = hn::MulAdd(f, hn::Set(df, 0.0013264729750475475f), hn::Set(df, 0.009671514723960694f));
    p = hn::MulAdd(f, p, hn::Set(df, 0.05550733756219158f));
    p = hn::MulAdd(f, p, hn::Set(df, 0.24022242053440457f));
    p = hn::MulAdd(f, p, hn::Set(df, 0.6931469775801593f));
  } else {
    p = hn::MulAdd(f, hn::Set(df, 0.009582856722817746f), hn::Set(df, 0.05590644413752842f));
    p = hn::MulAdd(f, p, hn::Set(df, 0.24024098665451735f));
    p = hn::MulAdd(f, p, hn::Set(df, 0.6931241911753503f));
  }
  p = hn::MulAdd(f, p, hn::Set(df, 1.0f));
  return hn::BitCast(df, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// ---- caps ----

// Of scores that are not yet scaled: cap * tanh(score * scale / cap), divided by the scale again.
class ScoreCap {
 public:
  explicit ScoreCap(const AttentionShape& s)
      : in_(s.softcap > 0 ? s.scale / s.softcap : 0), out_(s.softcap / s.scale) {}
  bool is_on() const { return in_ > 0; }
  HWY_INLINE V operator()(V score) const { return hn::Mul(hn::Set(df, out_), tanh(score)); }
  // The same, and how much it changes with the score.
  HWY_INLINE V with_slope(V score, V& slope) const {
    const V t = tanh(score);
    slope = hn::NegMulAdd(t, t, hn::Set(df, 1.0f));
    return hn::Mul(hn::Set(df, out_), t);
  }

 private:
  HWY_INLINE V tanh(V score) const { return hn::Tanh(df, hn::Mul(hn::Set(df, in_), score)); }
  float in_, out_;
};

// ---- biases ----

// Where the lanes of a task stand, and where their heads' rows of the bias begin.
struct BiasLanes {
  int32_t* position = nullptr;
  int32_t* row = nullptr;
};

// What is added to scores for the distance of a key, divided by the scale that scores do not have yet.
class ScoreBias {
 public:
  ScoreBias(const Tensor& bias, float scale)
      : table_(bias ? bias.data<float>() : nullptr), width_(bias ? int32_t(bias.dim(1)) : 0), factor_(1 / scale) {}
  bool is_on() const { return table_ != nullptr; }
  void set_lanes(BiasLanes lanes, const SpanLanes& s, int kv_head, int64_t first, int64_t count, int64_t last) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t lane = std::min(first + i, last);
      lanes.position[i] = int32_t(s.position(lane));
      lanes.row[i] = int32_t(kv_head * s.group + lane % s.group) * width_;
    }
  }
  // Of one key and a vector of lanes.
  HWY_INLINE V of_lanes(BiasLanes lanes, int64_t key) const {
    return at(hn::Sub(hn::Set(di, int32_t(key)), hn::LoadU(di, lanes.position)), hn::LoadU(di, lanes.row));
  }
  // Of one lane and a vector of keys.
  HWY_INLINE V of_keys(int32_t position, int32_t row, int64_t first_key) const {
    return at(hn::Iota(di, int32_t(first_key) - position), hn::Set(di, row));
  }

 private:
  using VI = hn::Vec<decltype(di)>;
  HWY_INLINE V at(VI distance, VI row) const {
    const VI reach = hn::Set(di, width_ / 2);
    const VI clamped = hn::Min(hn::Max(distance, hn::Neg(reach)), reach);
    return hn::Mul(hn::GatherIndex(df, table_, hn::Add(row, hn::Add(clamped, reach))), hn::Set(df, factor_));
  }
  const float* table_;
  int32_t width_;
  float factor_;
};

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

// ---- dropout ----

// The element index of key 0 for each lane of a tile, in halves.
struct DropoutLanes {
  uint32_t* low = nullptr;
  uint32_t* high = nullptr;
};

inline void set_dropout_lanes(DropoutLanes lanes, const AttentionShape& shape, const SpanLanes& s, int kv_head,
                              int64_t first, int64_t count) {
  const auto total_heads = uint64_t(shape.total_heads ? shape.total_heads : shape.num_heads);
  const int64_t first_head = shape.first_head + kv_head * s.group;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t lane = first + i;
    const auto row = uint64_t(s.first_query + lane / s.group), head = uint64_t(first_head + lane % s.group);
    const uint64_t index = ((row * total_heads + head) << 24) + uint64_t(s.first_key);
    lanes.low[i] = uint32_t(index), lanes.high[i] = uint32_t(index >> 32);
  }
}

struct WideProduct {
  VU low, high;
};

HWY_INLINE WideProduct wide_product(VU a, uint32_t b) {
  constexpr hn::ScalableTag<uint64_t> du64;
  const VU factor = hn::Set(du, b);
  const auto even = hn::MulEven(a, factor);
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(du64, a))), factor);
  return {hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)), hn::BitCast(du, even)),
          hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(even)))};
}

// What to multiply a probability by: 1 / (1 - p), or 0 where the element is dropped. As philox() of base/philox.h.
HWY_INLINE V dropout_factor(const DropoutKey& key, DropoutLanes lanes, int64_t key_row) {
  VU c0 = hn::Add(hn::LoadU(du, lanes.low), hn::Set(du, uint32_t(key_row))), c1 = hn::LoadU(du, lanes.high);
  VU c2 = hn::Set(du, uint32_t(key.stream)), c3 = hn::Set(du, uint32_t(key.stream >> 32));
  uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const WideProduct p0 = wide_product(c0, 0xD2511F53u), p1 = wide_product(c2, 0xCD9E8D57u);
    c0 = hn::Xor(hn::Xor(p1.high, c1), hn::Set(du, k0));
    c2 = hn::Xor(hn::Xor(p0.high, c3), hn::Set(du, k1));
    c1 = p1.low, c3 = p0.low;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  const V uniform = hn::Mul(hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<8>(c0))), hn::Set(df, 0x1p-24f));
  return hn::IfThenElseZero(hn::Ge(uniform, hn::Set(df, key.p)), hn::Set(df, 1.0f / (1.0f - key.p)));
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
