// What the tiles of attention are made of, per SIMD target: products of packed rows, exp, caps, biases, dropout.
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
#include "weft/kernels/cpu/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kNoMaximum = -1e30f;  // below any score, and finite so that differences are
constexpr float kLog2E = 1.44269504088896341f;

// ---- products ----

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

// ---- selected keys ----

// Where the bits of each lane's row begin, in words.
struct BitLanes {
  int32_t* row = nullptr;
};

// Which keys lanes have selected, by the bits of their rows.
class SelectedKeys {
 public:
  SelectedKeys(const Tensor& bits, const Tensor& k)
      : bits_(bits ? bits.data<int32_t>() : nullptr), words_(bits ? bits.dim(1) : 0), last_(k.dim(0) - 1) {}
  bool is_on() const { return bits_ != nullptr; }
  void set_lanes(BitLanes lanes, const SpanLanes& s, int64_t first, int64_t count, int64_t last) const {
    for (int64_t i = 0; i < count; ++i)
      lanes.row[i] = int32_t((s.q_begin + std::min(first + i, last) / s.group) * words_);
  }
  // x where the lanes have selected a row of k, else `otherwise`; behind the last row, anything.
  HWY_INLINE V only(BitLanes lanes, int64_t key, V x, V otherwise) const {
    key = std::min(key, last_);
    const auto words = hn::GatherIndex(di, bits_ + key / 32, hn::LoadU(di, lanes.row));
    const auto bit = hn::Set(di, int32_t(uint32_t(1) << (key % 32)));
    return hn::IfThenElse(hn::RebindMask(df, hn::TestBit(words, bit)), x, otherwise);
  }

 private:
  const int32_t* bits_;
  int64_t words_, last_;
};

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
