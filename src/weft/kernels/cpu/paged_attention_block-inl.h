// Blocks of lanes of paged attention against a tile of keys and values: scores, softmax, sums of values.
#if defined(WEFT_PAGED_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_PAGED_ATTENTION_BLOCK_INL_H_
#undef WEFT_PAGED_ATTENTION_BLOCK_INL_H_
#else
#define WEFT_PAGED_ATTENTION_BLOCK_INL_H_
#endif

#include "weft/kernels/cpu/paged_attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

// Rows [first, first + count) as blocks of lanes; what is missing of the last block is 0.
template <class Op, class E>
void pack_lanes(float* dst, RowView<const E> rows, int64_t first, int64_t count) {
  const int64_t block_floats = kBlockLanes * words_of<Op>(rows.dim);
  if (count % kBlockLanes != 0) std::fill_n(dst + count / kBlockLanes * block_floats, block_floats, 0.0f);
  for (int64_t lane = 0; lane < count; ++lane) {
    float* const block = dst + lane / kBlockLanes * block_floats + lane % kBlockLanes * 2;
    for_each_word_vector<Op>(rows[first + lane], rows.dim, rows.dim, [&](int64_t w, V x) HWY_ATTR {
      float words[kWide];
      hn::StoreU(x, df, words);
      for (int i = 0; i < kWide; i += 2) std::memcpy(block + (w + i) * kBlockLanes, words + i, 2 * sizeof(float));
    });
  }
}

// Of a block's lanes, those of a task: which of a tile's keys each of them sees.
struct BlockView {
  int count = 0;
  int64_t begin[kBlockLanes], end[kBlockLanes];

  BlockView(const State& t, int64_t lane, int64_t num_lanes, int64_t key, int64_t num_keys)
      : count(int(std::min<int64_t>(kBlockLanes, num_lanes))) {
    for (int r = 0; r < count; ++r) {
      begin[r] = std::clamp<int64_t>(t.start[lane + r] - key, 0, num_keys);
      end[r] = std::clamp<int64_t>(t.limit[lane + r] - key, 0, num_keys);
    }
  }
  bool sees_any() const {
    for (int r = 0; r < count; ++r) {
      if (begin[r] < end[r]) return true;
    }
    return false;
  }
  bool sees_all(int64_t num_keys) const {
    return *std::max_element(begin, begin + count) == 0 && *std::min_element(end, end + count) == num_keys;
  }
};

HWY_INLINE V two_words(const float* p) {
  uint64_t words;
  std::memcpy(&words, p, sizeof(words));
  return hn::BitCast(df, hn::Set(du64, words));
}

// p = the scores of a block's lanes, not yet scaled: each the sum over even words and then that over odd ones.
template <class Op>
HWY_NOINLINE void score_block(const Call& call, const State& t, int64_t lane, int64_t num_keys, RowsAhead& next) {
  RowsAhead ahead = next;
  const int64_t words = words_of<Op>(call.shape.head_dim);
  for (int64_t j = 0; j < num_keys; j += kScoreKeys) {
    const float* HWY_RESTRICT q = t.q + lane * words;
    V sum[kScoreKeys];
    HWY_UNROLL(16)
    for (int i = 0; i < kScoreKeys; ++i) sum[i] = hn::Zero(df);
    for (int64_t chunk = 0; chunk < words; chunk += kChunkWords) {
      const float* HWY_RESTRICT k = t.k + chunk * kTileKeys + j * kChunkWords;
      const float* const end = k + std::min<int64_t>(kChunkWords, words - chunk);
      for (; k < end; k += 2, q += kWide) {
        ahead();
        const V lanes = hn::LoadU(df, q);
        HWY_UNROLL(16)
        for (int i = 0; i < kScoreKeys; ++i) sum[i] = Op::mul_add(lanes, two_words(k + i * kChunkWords), sum[i]);
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kScoreKeys; i += 2) {
      const V even = hn::ConcatEven(df, sum[i + 1], sum[i]), odd = hn::ConcatOdd(df, sum[i + 1], sum[i]);
      hn::StoreU(hn::Add(even, odd), df, t.p + (j + i) * kBlockLanes);
    }
  }
  next = ahead;
}

HWY_INLINE V twice(VH x) { return hn::Combine(df, x, x); }

// What is seen of the two keys of a vector of scores.
struct SeenKeys {
  V first, limit;  // of lanes, twice

  SeenKeys(const State& t, int64_t lane, int64_t key)
      : first(relative(t.start + lane, key)), limit(relative(t.limit + lane, key)) {}
  static HWY_INLINE V relative(const int32_t* keys, int64_t to) {
    const auto distance = hn::Sub(hn::LoadU(di_half, keys), hn::Set(di_half, int32_t(to)));
    return twice(hn::ConvertTo(df_half, distance));
  }
  HWY_INLINE V operator()(V scores, int64_t j) const {
    const V at = hn::Combine(df, hn::Set(df_half, float(j + 1)), hn::Set(df_half, float(j)));
    const auto is_seen = hn::And(hn::Ge(at, first), hn::Lt(at, limit));
    return hn::IfThenElse(is_seen, scores, hn::Set(df, -HUGE_VALF));
  }
};

// Probabilities to words, in their place.
template <class Op>
HWY_INLINE void to_words(float* p, int64_t num_keys) {
  if constexpr (Op::kPerWord == 2) {
    for (int64_t j = 0; j < num_keys; j += 4) {
      const V low = hn::LoadU(df, p + j * kBlockLanes), high = hn::LoadU(df, p + (j + 2) * kBlockLanes);
      hn::StoreU(Op::round_halves(low, high), df, p + j / 2 * kBlockLanes);
    }
  }
}

// Scores of a block's lanes to words of probabilities, and the lanes' sums to their new maximum. A lane that sees
// none of the keys keeps what it has, to the last bit.
template <class Op, bool kSeesAll>
HWY_NOINLINE void softmax_block(const Call& call, const State& t, int64_t lane, int count, int64_t key,
                                int64_t num_keys) {
  float* const p = t.p;
  const int64_t end = round_up(num_keys, 2 * Op::kPerWord);  // keys behind num_keys are seen by nobody
  // A loop of its own: as a branch of the next one GCC 12 makes code of it, at -O3, that leaves the scores uncapped.
  if (const ScoreCap cap(call.shape); cap.is_on()) {
    for (int64_t j = 0; j < end * kBlockLanes; j += kWide) hn::StoreU(cap(hn::LoadU(df, p + j)), df, p + j);
  }
  [[maybe_unused]] const SeenKeys seen(t, lane, key);
  const V before = twice(hn::LoadU(df_half, t.split.maximum + lane));
  V maximum = before;
  for (int64_t j = 0; j < end; j += 2) {
    V score = hn::LoadU(df, p + j * kBlockLanes);
    if constexpr (!kSeesAll) hn::StoreU(score = seen(score, j), df, p + j * kBlockLanes);
    maximum = hn::Max(maximum, score);
  }
  const VH highest = hn::Max(hn::LowerHalf(df_half, maximum), hn::UpperHalf(df_half, maximum));
  hn::StoreU(highest, df_half, t.split.maximum + lane);
  const V scale = hn::Set(df, call.scale2), shift = hn::Mul(twice(highest), scale);
  V sum = hn::Zero(df);
  for (int64_t j = 0; j < end; j += 2) {
    const V probability = exp2<FloatWords>(hn::MulSub(hn::LoadU(df, p + j * kBlockLanes), scale, shift));
    hn::StoreU(probability, df, p + j * kBlockLanes);
    sum = hn::Add(sum, probability);
  }
  to_words<Op>(p, end);
  const V alpha = exp2<FloatWords>(hn::Mul(hn::Sub(before, twice(highest)), scale));
  const VH added = hn::Add(hn::LowerHalf(df_half, sum), hn::UpperHalf(df_half, sum));
  const VH old = hn::LoadU(df_half, t.split.sum + lane);
  hn::StoreU(hn::MulAdd(old, hn::LowerHalf(df_half, alpha), added), df_half, t.split.sum + lane);
  scale_sums(call, t, lane, count, alpha);
}

// o += p v of kLanes lanes, for words [begin, end) of a tile's keys.
template <class Op, int kLanes, class Meanwhile = Nothing>
HWY_INLINE void add_values(const Call& call, const State& t, int64_t lane, const float* p, int64_t begin, int64_t end,
                           Meanwhile&& meanwhile = {}) {
  const auto add = [&]<int kCols>(int64_t e) HWY_ATTR {
    float* o = t.split.o + lane * call.padded + e;
    V acc[kCols][kLanes];
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kLanes; ++r) acc[c][r] = hn::LoadU(df, o + r * call.padded + c * kWide);
    }
    multiply<Op, kCols>(p + begin * kBlockLanes, 1, kBlockLanes, t.v + begin * call.padded + e, call.padded,
                        end - begin, acc, meanwhile);
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kLanes; ++r) hn::StoreU(acc[c][r], df, o + r * call.padded + c * kWide);
    }
  };
  constexpr int kCols = kLanes <= 2 ? 4 : 2;
  int64_t e = 0;
  for (; e + kCols * kWide <= call.padded; e += kCols * kWide) add.template operator()<kCols>(e);
  for (; e < call.padded; e += kWide) add.template operator()<1>(e);
}

// The same of a word's first or second key alone: the other one's value may be no number, which 0 does not hide.
template <class Op>
HWY_INLINE void add_half_word(const Call& call, const State& t, int64_t lane, const float* p, int64_t word,
                              bool is_first) {
  float* const o = t.split.o + lane * call.padded;
  const float* const v = t.v + word * call.padded;
  const VU keep = hn::Set(du, is_first ? 0xffffu : 0xffff0000u);
  for (int64_t e = 0; e < call.padded; e += kWide) {
    const V values = hn::BitCast(df, hn::And(keep, hn::BitCast(du, hn::LoadU(df, v + e))));
    hn::StoreU(Op::mul_add(hn::Set(df, p[word * kBlockLanes]), values, hn::LoadU(df, o + e)), df, o + e);
  }
}

// Those of words [first, last) that a lane sees, of whose keys it sees [begin, end).
template <class Op>
HWY_INLINE void add_own_values(const Call& call, const State& t, int64_t lane, const float* p, int64_t first,
                               int64_t last, int64_t begin, int64_t end) {
  if constexpr (Op::kPerWord == 2) {
    if (first < last && 2 * first < begin) add_half_word<Op>(call, t, lane, p, first++, false);
    const bool has_half = first < last && 2 * last > end;
    add_values<Op, 1>(call, t, lane, p, first, last - has_half);
    if (has_half) add_half_word<Op>(call, t, lane, p, last - 1, true);
  } else {
    add_values<Op, 1>(call, t, lane, p, first, last);
  }
}

// o += p v of lanes [r, r + kLanes) of a block. All of them at once where all see a word's keys, else lane by lane: 0
// times a value need not be 0.
template <class Op, int kLanes>
HWY_NOINLINE void add_tile(const Call& call, const State& t, int64_t lane, const BlockView& view, int r,
                           RowsAhead& next) {
  constexpr int64_t kPer = Op::kPerWord;
  const int64_t *begin = view.begin + r, *end = view.end + r;
  const int64_t first = ceil_div(*std::max_element(begin, begin + kLanes), kPer);
  const int64_t last = *std::min_element(end, end + kLanes) / kPer;
  const bool has_common = first < last;
  const auto add_own = [&](int i, int64_t from, int64_t to) HWY_ATTR {
    if (begin[i] < end[i]) add_own_values<Op>(call, t, lane + r + i, t.p + r + i, from, to, begin[i], end[i]);
  };
  for (int i = 0; i < kLanes; ++i) add_own(i, begin[i] / kPer, has_common ? first : ceil_div(end[i], kPer));
  if (!has_common) return;
  RowsAhead ahead = next;
  add_values<Op, kLanes>(call, t, lane + r, t.p + r, first, last, ahead);
  next = ahead;
  for (int i = 0; i < kLanes; ++i) add_own(i, last, ceil_div(end[i], kPer));
}

// A block of lanes, or the first `num_lanes` of them, against a tile.
template <class Op>
void block_tile(const Call& call, const State& t, int64_t lane, int64_t num_lanes, int64_t key, int64_t num_keys,
                RowsAhead& ahead) {
  const BlockView view(t, lane, num_lanes, key, num_keys);
  if (!view.sees_any()) return;
  score_block<Op>(call, t, lane, num_keys, ahead);
  if (num_keys % (2 * Op::kPerWord) == 0 && view.sees_all(num_keys))
    softmax_block<Op, true>(call, t, lane, view.count, key, num_keys);
  else
    softmax_block<Op, false>(call, t, lane, view.count, key, num_keys);
  if (view.count == kBlockLanes) return add_tile<Op, kBlockLanes>(call, t, lane, view, 0, ahead);
  int r = 0;
  for (; r + 4 <= view.count; r += 4) add_tile<Op, 4>(call, t, lane, view, r, ahead);
  for (; r < view.count; ++r) add_tile<Op, 1>(call, t, lane, view, r, ahead);
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
