// Attention of one to four lanes, as in decoding: vectors run along the head dim, so that keys and values are read
// once, where they lie, at the speed of memory.
#if defined(WEFT_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_ATTENTION_DECODE_INL_H_
#undef WEFT_ATTENTION_DECODE_INL_H_
#else
#define WEFT_ATTENTION_DECODE_INL_H_
#endif

#include "weft/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int kDecodeLanes = 4;
constexpr int kDecodeKeys = 64;  // of a tile

// Rows per lane, of floats padded to multiples of 16.
struct DecodeState {
  float *q, *o;
  float* s;  // [lane][kDecodeKeys]: scores, then probabilities
  float *maximum, *sum, *limit, *start;
  BiasLanes bias;
};

// s[lane][j] = q[lane] . k[key + j], for four keys at a time.
template <class E>
HWY_INLINE void decode_scores(const DecodeState& t, RowView<const E> k, RowView<const E> v, int64_t num_lanes,
                              int64_t key, int64_t num_keys, int64_t end) {
  const int64_t padded = round_up(k.dim, 16);
  for (int64_t j = 0; j < num_keys; j += 4) {
    const int64_t next = key + j + kDecodeKeys, ahead = std::clamp<int64_t>(end - next, 0, 4);
    prefetch_rows(k, next, ahead);
    prefetch_rows(v, next, ahead);
    const E* row[4];
    for (int i = 0; i < 4; ++i) row[i] = k[key + std::min(j + i, num_keys - 1)];
    for (int64_t lane = 0; lane < num_lanes; ++lane) {
      const float* q = t.q + lane * padded;
      V s0 = hn::Zero(df), s1 = s0, s2 = s0, s3 = s0;
      for_each_vector<FloatWords>(k.dim, [&](int64_t e, auto tail) HWY_ATTR {
        const V x = hn::LoadU(df, q + e);
        s0 = hn::MulAdd(x, load_words<FloatWords, tail.value>(row[0], e, k.dim), s0);
        s1 = hn::MulAdd(x, load_words<FloatWords, tail.value>(row[1], e, k.dim), s1);
        s2 = hn::MulAdd(x, load_words<FloatWords, tail.value>(row[2], e, k.dim), s2);
        s3 = hn::MulAdd(x, load_words<FloatWords, tail.value>(row[3], e, k.dim), s3);
      });
      float* s = t.s + lane * kDecodeKeys + j;
      s[0] = hn::GetLane(hn::SumOfLanes(df, s0)), s[1] = hn::GetLane(hn::SumOfLanes(df, s1));
      s[2] = hn::GetLane(hn::SumOfLanes(df, s2)), s[3] = hn::GetLane(hn::SumOfLanes(df, s3));
    }
  }
}

// Scores to probabilities; returns what o must be multiplied by.
HWY_INLINE float decode_softmax(const DecodeState& t, int64_t lane, int64_t key, float scale2, const ScoreCap& cap,
                                const ScoreBias& bias) {
  float* s = t.s + lane * kDecodeKeys;
  const V limit = hn::Set(df, t.limit[lane] - float(key)), start = hn::Set(df, t.start[lane] - float(key));
  V maximum = hn::Set(df, t.maximum[lane]);
  for (int j = 0; j < kDecodeKeys; j += kWide) {
    const V at = hn::Iota(df, float(j));
    const auto seen = hn::And(hn::Lt(at, limit), hn::Ge(at, start));
    V score = hn::LoadU(df, s + j);
    if (cap.is_on()) score = cap(score);
    if (bias.is_on()) score = hn::Add(score, bias.of_keys(t.bias.position[lane], t.bias.row[lane], key + j));
    score = hn::IfThenElse(seen, score, hn::Set(df, -HUGE_VALF));
    hn::StoreU(score, df, s + j);
    maximum = hn::Max(maximum, score);
  }
  maximum = hn::MaxOfLanes(df, maximum);
  const V scale = hn::Set(df, scale2), shift = hn::Mul(maximum, scale);
  V sum = hn::Zero(df);
  for (int j = 0; j < kDecodeKeys; j += kWide) {
    const V p = exp2<FloatWords>(hn::MulSub(hn::LoadU(df, s + j), scale, shift));
    hn::StoreU(p, df, s + j);
    sum = hn::Add(sum, p);
  }
  const float alpha = hn::GetLane(exp2<FloatWords>(hn::MulSub(hn::Set(df, t.maximum[lane]), scale, shift)));
  t.sum[lane] = t.sum[lane] * alpha + hn::GetLane(hn::SumOfLanes(df, sum));
  t.maximum[lane] = hn::GetLane(maximum);
  return alpha;
}

// o = o alpha + p v.
template <class E>
HWY_INLINE void decode_values(float* o, const float* p, RowView<const E> v, int64_t key, int64_t num_keys,
                              float alpha) {
  constexpr int kSpan = 4 * kWide;
  const V rescale = hn::Set(df, alpha);
  int64_t e = 0;
  for (; e + kSpan <= v.dim; e += kSpan) {
    V sum[2][4];
    HWY_UNROLL(4)
    for (int c = 0; c < 4; ++c) {
      sum[0][c] = hn::Mul(rescale, hn::LoadU(df, o + e + c * kWide)), sum[1][c] = hn::Zero(df);
    }
    for (int64_t j = 0; j < num_keys; j += 2) {
      const int64_t other = std::min(j + 1, num_keys - 1);
      const E *even = v[key + j], *odd = v[key + other];
      const V p0 = hn::Set(df, p[j]), p1 = hn::Set(df, other > j ? p[j + 1] : 0.0f);
      HWY_UNROLL(4)
      for (int c = 0; c < 4; ++c) {
        sum[0][c] = hn::MulAdd(p0, load_words<FloatWords, false>(even, e + c * kWide, v.dim), sum[0][c]);
        sum[1][c] = hn::MulAdd(p1, load_words<FloatWords, false>(odd, e + c * kWide, v.dim), sum[1][c]);
      }
    }
    HWY_UNROLL(4)
    for (int c = 0; c < 4; ++c) hn::StoreU(hn::Add(sum[0][c], sum[1][c]), df, o + e + c * kWide);
  }
  for (; e < v.dim; e += kWide) {
    V sum = hn::Mul(rescale, hn::LoadU(df, o + e));
    for (int64_t j = 0; j < num_keys; ++j) {
      sum = hn::MulAdd(hn::Set(df, p[j]), load_words<FloatWords, true>(v[key + j], e, v.dim), sum);
    }
    hn::StoreU(sum, df, o + e);
  }
}

// o, maximum and sum of `num_lanes` lanes over keys [begin, end).
template <class E>
HWY_NOINLINE void decode(const DecodeState& t, RowView<const E> k, RowView<const E> v, int64_t num_lanes,
                         int64_t begin, int64_t end, const AttentionShape& shape, const ScoreBias& bias) {
  const int64_t padded = round_up(v.dim, 16);
  const ScoreCap cap(shape);
  std::memset(t.o, 0, size_t(num_lanes * padded) * sizeof(float));
  for (int64_t key = begin; key < end; key += kDecodeKeys) {
    const int64_t num_keys = std::min<int64_t>(kDecodeKeys, end - key);
    decode_scores<E>(t, k, v, num_lanes, key, num_keys, end);
    for (int64_t lane = 0; lane < num_lanes; ++lane) {
      const float alpha = decode_softmax(t, lane, key, shape.scale * kLog2E, cap, bias);
      const int64_t visible = std::clamp<int64_t>(int64_t(t.limit[lane]) - key, 0, num_keys);
      decode_values<E>(t.o + lane * padded, t.s + lane * kDecodeKeys, v, key, visible, alpha);
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
