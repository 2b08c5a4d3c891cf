// Attention over keys and values that lie in the blocks of a pool: lanes, each one head of one row, against a tile of
// keys and values. See paged_attention.cpp.
#if defined(WEFT_PAGED_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_PAGED_ATTENTION_TILE_INL_H_
#undef WEFT_PAGED_ATTENTION_TILE_INL_H_
#else
#define WEFT_PAGED_ATTENTION_TILE_INL_H_
#endif

#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/attention_codes-inl.h"
#include "weft/kernels/cpu/attention_plan.h"
#include "weft/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTaskLanes = 128;  // that share the packing of a tile of keys
constexpr int kTileKeys = 64;    // a tile of keys and one of values stay in L2
constexpr int kSplitKeys = 512;  // what a long sequence with few lanes is cut into, so that it uses every core
constexpr int kBlockLanes = kWide == 16 ? 8 : 4;  // with two vectors of sums each: half of the registers

// Two bf16 neighbours are moved as one word.
struct PairWords {
  static constexpr int kPerWord = 2;
};

// Rows of a pool, of one key/value head: `at` says where in the pool each of them lies.
template <class E>
struct PoolRows {
  const E* base;
  const int32_t* at;
  int64_t row_stride;  // elements
  int dim;
  const E* operator[](int64_t j) const { return base + at[j] * row_stride; }
};

struct Call {
  const PagedAttentionArgs& args;
  AttentionShape shape;
  int64_t k_rows, padded;  // padded: of values
  int group;
  float scale2;  // to exponents of 2

  explicit Call(const PagedAttentionArgs& a)
      : args(a),
        shape(shapes::shape_of(a)),
        k_rows(round_up(shape.head_dim, 64)),
        padded(round_up(shape.values_dim(), 16)),
        group(shape.num_heads / shape.num_kv_heads),
        scale2(a.scale * kLog2E) {}
  int64_t num_lanes(const PagedSequence& s) const { return int64_t(s.q_end - s.q_begin) * group; }
  int64_t num_tiles(const PagedSequence& s) const { return ceil_div(num_lanes(s), kTaskLanes); }
  // A lane sees keys [start(lane), limit(lane)).
  int64_t limit(const PagedSequence& s, int64_t lane) const {
    return s.num_keys - (s.q_end - s.q_begin) + lane / group + 1;
  }
  int64_t start(const PagedSequence& s, int64_t lane) const {
    return args.window > 0 ? std::max<int64_t>(limit(s, lane) - args.window, 0) : 0;
  }
  int64_t first_split(const PagedSequence& s, int64_t lane) const { return start(s, lane) / kSplitKeys; }
  int64_t num_splits(const PagedSequence& s) const { return ceil_div(s.num_keys, kSplitKeys) - first_split(s, 0); }
};

// Of lanes, over some of their keys: sums of p v, the highest score and the sum of p = exp(score - highest).
struct Softmax {
  float *o, *maximum, *sum;

  static Softmax make(Arena& a, int64_t num_lanes, int64_t padded) {
    return {a.take<float>(num_lanes * padded), a.take<float>(round_up(num_lanes, 16)),
            a.take<float>(round_up(num_lanes, 16))};
  }
  static int64_t bytes(int64_t num_lanes, int64_t padded) {
    Arena counted;
    make(counted, num_lanes, padded);
    return int64_t(counted.used());
  }
  void clear(int64_t num_lanes, int64_t padded) const {
    std::fill_n(o, num_lanes * padded, 0.0f);
    std::fill_n(maximum, round_up(num_lanes, 16), kNoMaximum);
    std::fill_n(sum, round_up(num_lanes, 16), 0.0f);
  }
};

// A worker's memory.
struct State {
  float *q, *k, *v;        // words of lanes; columns of words of keys, [k_rows][kTileKeys]; words of values
  float* p;                // [kBlockLanes][kTileKeys]: scores, then words of probabilities
  int32_t *start, *limit;  // of lanes
  int32_t *rows, *next;    // of the pool, for the tile at hand and the one after it
  Softmax split, all;      // over a split, and over those before it
  float *keep, *take;      // what joining multiplies these by

  static State make(Arena& a, const Call& call) {
    State t;
    t.q = a.take<float>(kTaskLanes * words_of<FloatWords>(call.shape.head_dim)),
    t.k = a.take<float>(call.k_rows * kTileKeys);
    t.v = a.take<float>(kTileKeys * call.padded), t.p = a.take<float>(kBlockLanes * kTileKeys);
    t.start = a.take<int32_t>(kTaskLanes), t.limit = a.take<int32_t>(kTaskLanes);
    t.rows = a.take<int32_t>(kTileKeys), t.next = a.take<int32_t>(kTileKeys);
    t.split = Softmax::make(a, kTaskLanes, call.padded), t.all = Softmax::make(a, kTaskLanes, call.padded);
    t.keep = a.take<float>(kTaskLanes), t.take = a.take<float>(kTaskLanes);
    return t;
  }
};

// Where a tile begins. Nowhere: sequence is null.
struct TilePlace {
  const PagedSequence* sequence = nullptr;
  int64_t key = 0;
  int kv_head = 0;
};

// ---- a tile of keys and values ----

void find_rows(const Call& call, const PagedSequence& s, int64_t key, int64_t count, int32_t* rows) {
  const int64_t block_tokens = call.args.keys.dim(1);
  int64_t block = key / block_tokens, place = key % block_tokens;
  for (int64_t j = 0; j < count; ++j) {
    rows[j] = int32_t(s.blocks[block] * block_tokens + place);
    if (++place == block_tokens) ++block, place = 0;
  }
}

// dst[w][j] = word w of row first + j, for j < kWide; past count the last row again.
template <class Op, class E>
HWY_INLINE void pack_keys(float* dst, const PoolRows<E>& rows, int64_t first, int64_t count) {
  using Moved = std::conditional_t<std::is_same_v<E, BFloat16>, PairWords, FloatWords>;
  constexpr int kSplit = Moved::kPerWord / Op::kPerWord;  // words that one which is moved becomes
  const E* row[kWide];
  for (int i = 0; i < kWide; ++i) row[i] = rows[first + std::min<int64_t>(i, count - 1)];
  for_each_vector<Moved>(rows.dim, [&](int64_t w, auto tail) HWY_ATTR {
    V x[kWide];
    HWY_UNROLL(16)
    for (int i = 0; i < kWide; ++i) x[i] = load_words<Moved, tail.value>(row[i], w * Moved::kPerWord, rows.dim);
    transpose(x);
    float* out = dst + w * kSplit * kTileKeys;
    HWY_UNROLL(16)
    for (int i = 0; i < kWide; ++i) {
      if constexpr (kSplit == 1) {
        hn::StoreU(x[i], df, out + i * kTileKeys);
      } else {
        const VU pair = hn::BitCast(du, x[i]);
        hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(pair)), df, out + 2 * i * kTileKeys);
        hn::StoreU(hn::BitCast(df, hn::And(pair, hn::Set(du, 0xffff0000u))), df, out + (2 * i + 1) * kTileKeys);
      }
    }
  });
}

template <class E>
HWY_INLINE void prefetch(const PoolRows<E>& rows, int64_t first, int64_t count) {
  if constexpr (kIsCode<E>)
    prefetch_codes(rows, first, count);
  else
    prefetch_rows(rows, first, count);
}

// The keys and values of a head at the rows `at` of the pool.
template <class E>
struct TileRows {
  PoolRows<E> k, v;

  TileRows(const Call& call, int head, const int32_t* at)
      : k(rows_of(call.args.keys, call.shape.head_dim, head, at)),
        v(rows_of(call.args.values, call.shape.values_dim(), head, at)) {}
  static PoolRows<E> rows_of(const Tensor& pool, int dim, int head, const int32_t* at) {
    return {static_cast<const E*>(pool.raw()) + head * pool.dim(3), at, pool.dim(2) * pool.dim(3), dim};
  }
};

// Packs a tile, and asks for the next one meanwhile.
template <class Op, class E>
HWY_NOINLINE void pack_tile(const Call& call, const State& t, int kv_head, int64_t num_keys, int next_head,
                            int64_t num_next) {
  const auto [k, v] = TileRows<E>(call, kv_head, t.rows);
  const auto [next_k, next_v] = TileRows<E>(call, next_head, t.next);
  for (int64_t j = 0; j < num_keys; j += kWide) {
    const int64_t count = std::min<int64_t>(kWide, num_keys - j), ahead = std::clamp<int64_t>(num_next - j, 0, kWide);
    prefetch(next_k, j, ahead);
    if constexpr (kIsCode<E>)
      pack_key_codes<kTileKeys, E>(t.k + j, k, j, count);
    else
      pack_keys<Op, E>(t.k + j, k, j, count);
    prefetch(next_v, j, ahead);
    if constexpr (kIsCode<E>)
      pack_value_codes<E>(t.v + j * call.padded, v, j, count);
    else
      pack_pairs<Op, E>(t.v + j / Op::kPerWord * call.padded, v, j, count);
  }
}

// ---- lanes against a tile ----

// p = the scores of kLanes lanes, not yet scaled.
template <class Op, int kLanes>
HWY_INLINE void score_tile(const Call& call, const State& t, int64_t lane, int64_t num_keys) {
  constexpr int kCols = kLanes <= 2 ? 4 : 2;  // one or two lanes alone would wait for each addition
  for (int64_t j = 0; j < num_keys; j += kCols * kWide) {
    V acc[kCols][kLanes];
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kLanes; ++r) acc[c][r] = hn::Zero(df);
    }
    const int64_t stride = words_of<Op>(call.shape.head_dim), words = ceil_div(call.shape.head_dim, Op::kPerWord);
    multiply<Op, kCols>(t.q + lane * stride, stride, 1, t.k + j, kTileKeys, words, acc);
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kLanes; ++r) hn::StoreU(acc[c][r], df, t.p + r * kTileKeys + j + c * kWide);
    }
  }
}

// Probabilities to words, in their place.
template <class Op>
HWY_INLINE void to_words(float* p, int64_t num_keys) {
  if constexpr (Op::kPerWord == 2) {
    const int64_t filled = round_up(num_keys, kWide);
    if (filled % (2 * kWide) != 0) hn::StoreU(hn::Zero(df), df, p + filled);
    for (int64_t j = 0; j < num_keys; j += 2 * kWide)
      hn::StoreU(Op::round(hn::LoadU(df, p + j), hn::LoadU(df, p + j + kWide)), df, p + j / 2);
  }
}

// Scores of a tile's keys [begin, end) to words of probabilities, and the lane's sums to their new maximum.
template <class Op>
HWY_NOINLINE void softmax_tile(const Call& call, const State& t, int64_t lane, float* p, int64_t begin, int64_t end,
                               int64_t num_keys) {
  // A loop of its own: as a branch of the next one GCC 12 makes code of it, at -O3, that leaves the scores uncapped.
  if (const ScoreCap cap(call.shape); cap.is_on()) {
    for (int64_t j = 0; j < num_keys; j += kWide) hn::StoreU(cap(hn::LoadU(df, p + j)), df, p + j);
  }
  const V first = hn::Set(df, float(begin)), limit = hn::Set(df, float(end));
  V maximum = hn::Set(df, t.split.maximum[lane]);
  for (int64_t j = 0; j < num_keys; j += kWide) {
    const V at = hn::Iota(df, float(j));
    const auto is_seen = hn::And(hn::Ge(at, first), hn::Lt(at, limit));
    const V score = hn::IfThenElse(is_seen, hn::LoadU(df, p + j), hn::Set(df, -HUGE_VALF));
    hn::StoreU(score, df, p + j);
    maximum = hn::Max(maximum, score);
  }
  maximum = hn::MaxOfLanes(df, maximum);
  const V scale = hn::Set(df, call.scale2), shift = hn::Mul(maximum, scale);
  V sum = hn::Zero(df);
  for (int64_t j = 0; j < num_keys; j += kWide) {
    const V probability = exp2<FloatWords>(hn::MulSub(hn::LoadU(df, p + j), scale, shift));
    hn::StoreU(probability, df, p + j);
    sum = hn::Add(sum, probability);
  }
  to_words<Op>(p, num_keys);
  const V alpha = exp2<FloatWords>(hn::MulSub(hn::Set(df, t.split.maximum[lane]), scale, shift));
  t.split.sum[lane] = std::fma(t.split.sum[lane], hn::GetLane(alpha), hn::GetLane(hn::SumOfLanes(df, sum)));
  t.split.maximum[lane] = hn::GetLane(maximum);
  if (hn::GetLane(alpha) == 1) return;
  float* o = t.split.o + lane * call.padded;
  for (int64_t e = 0; e < call.padded; e += kWide) hn::StoreU(hn::Mul(hn::LoadU(df, o + e), alpha), df, o + e);
}

// o += p v of kLanes lanes, for words [begin, end) of a tile's keys.
template <class Op, int kLanes>
HWY_INLINE void add_values(const Call& call, const State& t, int64_t lane, const float* p, int64_t begin,
                           int64_t end) {
  const auto add = [&]<int kCols>(int64_t e) HWY_ATTR {
    float* o = t.split.o + lane * call.padded + e;
    V acc[kCols][kLanes];
    HWY_UNROLL(4)
    for (int c = 0; c < kCols; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kLanes; ++r) acc[c][r] = hn::LoadU(df, o + r * call.padded + c * kWide);
    }
    multiply<Op, kCols>(p + begin, kTileKeys, 1, t.v + begin * call.padded + e, call.padded, end - begin, acc);
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
    hn::StoreU(Op::mul_add(hn::Set(df, p[word]), values, hn::LoadU(df, o + e)), df, o + e);
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

template <class Op, int kLanes>
HWY_NOINLINE void lanes_tile(const Call& call, const State& t, int64_t lane, int64_t key, int64_t num_keys) {
  int64_t begin[kLanes], end[kLanes];
  bool is_seen = false;
  for (int r = 0; r < kLanes; ++r) {
    begin[r] = std::clamp<int64_t>(t.start[lane + r] - key, 0, num_keys);
    end[r] = std::clamp<int64_t>(t.limit[lane + r] - key, 0, num_keys);
    is_seen |= begin[r] < end[r];
  }
  if (!is_seen) return;
  score_tile<Op, kLanes>(call, t, lane, num_keys);
  for (int r = 0; r < kLanes; ++r) {
    if (begin[r] < end[r]) softmax_tile<Op>(call, t, lane + r, t.p + r * kTileKeys, begin[r], end[r], num_keys);
  }
  // All lanes at once where all of them see a word's keys, else lane by lane: 0 times a value need not be 0.
  constexpr int64_t kPer = Op::kPerWord;
  const int64_t first = ceil_div(*std::max_element(begin, begin + kLanes), kPer);
  const int64_t last = *std::min_element(end, end + kLanes) / kPer;
  const bool has_common = first < last;
  const auto add_own = [&](int r, int64_t from, int64_t to) HWY_ATTR {
    if (begin[r] < end[r]) add_own_values<Op>(call, t, lane + r, t.p + r * kTileKeys, from, to, begin[r], end[r]);
  };
  for (int r = 0; r < kLanes; ++r) add_own(r, begin[r] / kPer, has_common ? first : ceil_div(end[r], kPer));
  if (!has_common) return;
  add_values<Op, kLanes>(call, t, lane, t.p, first, last);
  for (int r = 0; r < kLanes; ++r) add_own(r, last, ceil_div(end[r], kPer));
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
