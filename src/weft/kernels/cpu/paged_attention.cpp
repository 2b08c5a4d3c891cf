// Attention over keys and values that lie in the blocks of a pool, for serving.
// Sources: Kwon et al., "PagedAttention", 2023; Dao et al., "Flash-Decoding", 2023.
//
// What a row becomes depends on nothing but itself and its keys, to the last bit. A sequence's keys are cut into
// tiles and splits that are counted from its first key. A lane, which is one head of one row, has a softmax of its
// own: it takes the tiles of a split in their order and then joins the splits in theirs, whichever tasks these belong
// to. Lanes only share the loads of a tile. A tile or key that a lane does not see leaves its state alone.
#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/attention_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/paged_attention.cpp"
#include <hwy/foreach_target.h>

#include "weft/kernels/cpu/attention_codes-inl.h"
#include "weft/kernels/cpu/attention_tile-inl.h"
#include "weft/kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTaskLanes = 128;  // that share the packing of a tile of keys
constexpr int kTileKeys = 64;    // a tile of keys and one of values stay in L2
constexpr int kSplitKeys = 512;  // what a long sequence with few lanes is cut into, so that it uses every core
constexpr int kBlockLanes = kWide == 16 ? 8 : 4;  // with two vectors of sums each: half of the registers
constexpr int kTasksPerWorker = 4;

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

// Lanes [first, first + count) of a sequence, of one key/value head, over splits [split, end_split) of its keys.
struct Task {
  const PagedSequence& sequence;
  int64_t index = 0;  // of the sequence
  int64_t first = 0, count = 0, split = 0, end_split = 0;
  int kv_head = 0;
  bool is_part = false;  // other tasks have the other splits
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

// ---- splits ----

int64_t first_key(const Call& call, const Task& task, int64_t split) {
  return std::max<int64_t>(split * kSplitKeys, call.start(task.sequence, task.first) / kTileKeys * kTileKeys);
}

// t.split = the task's lanes over the keys of one split. `after`: the tile that is wanted next.
template <class Op, class E>
void run_split(const Call& call, const Task& task, int64_t split, const TilePlace& after, State t) {
  t.split.clear(task.count, call.padded);
  const int64_t begin = first_key(call, task, split);
  const int64_t end = std::min<int64_t>((split + 1) * kSplitKeys, t.limit[task.count - 1]);
  const int64_t num_first = std::clamp<int64_t>(end - begin, 0, kTileKeys);
  find_rows(call, task.sequence, begin, num_first, t.rows);
  const TileRows<E> first(call, task.kv_head, t.rows);
  prefetch(first.k, 0, num_first);
  prefetch(first.v, 0, num_first);
  for (int64_t key = begin; key < end; key += kTileKeys) {
    const int64_t num_keys = std::min<int64_t>(kTileKeys, end - key);
    const TilePlace next = key + num_keys < end ? TilePlace{&task.sequence, key + num_keys, task.kv_head} : after;
    const int64_t num_next = next.sequence ? std::min<int64_t>(kTileKeys, next.sequence->num_keys - next.key) : 0;
    if (num_next > 0) find_rows(call, *next.sequence, next.key, num_next, t.next);
    pack_tile<Op, E>(call, t, task.kv_head, num_keys, next.kv_head, num_next);
    std::swap(t.rows, t.next);
    int64_t lane = 0;
    for (; lane + kBlockLanes <= task.count; lane += kBlockLanes)
      lanes_tile<Op, kBlockLanes>(call, t, lane, key, num_keys);
    for (; lane + 4 <= task.count; lane += 4) lanes_tile<Op, 4>(call, t, lane, key, num_keys);
    for (; lane < task.count; ++lane) lanes_tile<Op, 1>(call, t, lane, key, num_keys);
  }
}

// t.all = t.all and then `split`.
HWY_NOINLINE void join(const Call& call, const State& t, const Softmax& split, int64_t count) {
  const V scale = hn::Set(df, call.scale2);
  for (int64_t i = 0; i < count; i += kWide) {
    const V before = hn::LoadU(df, t.all.maximum + i), there = hn::LoadU(df, split.maximum + i);
    const V maximum = hn::Max(before, there);
    const V keep = exp2<FloatWords>(hn::Mul(hn::Sub(before, maximum), scale));
    const V take = exp2<FloatWords>(hn::Mul(hn::Sub(there, maximum), scale));
    const V sum = hn::MulAdd(hn::LoadU(df, t.all.sum + i), keep, hn::Mul(hn::LoadU(df, split.sum + i), take));
    hn::StoreU(maximum, df, t.all.maximum + i);
    hn::StoreU(sum, df, t.all.sum + i);
    hn::StoreU(keep, df, t.keep + i);
    hn::StoreU(take, df, t.take + i);
  }
  for (int64_t lane = 0; lane < count; ++lane) {
    if (split.sum[lane] == 0) continue;  // it sees none of these keys
    const V keep = hn::Set(df, t.keep[lane]), take = hn::Set(df, t.take[lane]);
    float* o = t.all.o + lane * call.padded;
    const float* part = split.o + lane * call.padded;
    for (int64_t e = 0; e < call.padded; e += kWide)
      hn::StoreU(hn::MulAdd(hn::LoadU(df, o + e), keep, hn::Mul(hn::LoadU(df, part + e), take)), df, o + e);
  }
}

template <class E>
RowView<E> lanes_of(const Call& call, const Tensor& x, const Task& task, int dim) {
  return rows_of<E>(x, call.shape.num_heads, dim, task.sequence.q_begin, task.kv_head * call.group, call.group);
}

// y = t.all.
template <class E>
void finish(const Call& call, const Task& task, const State& t) {
  const int dim = call.shape.values_dim();
  const RowView<E> y = lanes_of<E>(call, call.args.y, task, dim);
  for (int64_t lane = 0; lane < task.count; ++lane) {
    const V factor = hn::Set(df, 1 / t.all.sum[lane]);
    const float* o = t.all.o + lane * call.padded;
    E* row = y[task.first + lane];
    for_each_vector<FloatWords>(dim, [&](int64_t e, auto tail) HWY_ATTR {
      store_floats<tail.value>(row, e, dim, hn::Mul(hn::LoadU(df, o + e), factor));
    });
  }
}

template <class Op, class E>
void set_lanes(const Call& call, const Task& task, const State& t) {
  pack_rows<Op, E>(t.q, lanes_of<const E>(call, call.args.q, task, call.shape.head_dim), task.first, task.count);
  for (int64_t i = 0; i < task.count; ++i) {
    t.start[i] = int32_t(call.start(task.sequence, task.first + i));
    t.limit[i] = int32_t(call.limit(task.sequence, task.first + i));
  }
}

// Calls body(element of the dtype of t).
template <class Body>
void with_element(const Tensor& t, Body&& body) {
  if (t.dtype() == DType::f32) return body(float());
  if (t.dtype() == DType::bf16) return body(BFloat16());
  return body(Float16());
}

// The same of the pool.
template <class Body>
void with_pool_element(const PagedAttentionArgs& args, Body&& body) {
  if (args.codes == RowCodes::int8) return body(Int8Code());
  if (args.codes == RowCodes::fp8) return body(Fp8Code());
  with_element(args.keys, body);
}

// ---- tasks ----

// How the work is cut, at the front of worker 0's scratch: where each sequence's tasks begin, and where the splits of
// one that is cut by keys leave what they have. Neither changes a result.
struct Plan {
  int64_t *tasks, *slots;  // [num_sequences + 1], slots in bytes
  std::byte* parts;

  // Of a sequence whose lanes fit into one task, a task with more than its share of the work is cut by keys.
  static bool is_cut(const Call& call, const PagedSequence& s, double share) {
    const int64_t lanes = call.num_lanes(s);
    return lanes > 0 && lanes <= kTaskLanes && call.num_splits(s) > 1 && double(lanes) * s.num_keys > share;
  }
  static double share(const Call& call, int num_workers) {
    double work = 0;
    for (int i = 0; i < call.args.num_sequences; ++i) {
      const PagedSequence& s = call.args.sequences[i];
      work += double(call.num_lanes(s)) * s.num_keys;
    }
    return work * call.shape.num_kv_heads / (kTasksPerWorker * num_workers);
  }
  static Plan make(Arena& a, const Call& call, double share) {
    const int64_t n = call.args.num_sequences;
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; ++i) bytes += slot_bytes(call, call.args.sequences[i], share);
    return {a.take<int64_t>(n + 1), a.take<int64_t>(n + 1), a.take<std::byte>(bytes)};
  }
  static int64_t slot_bytes(const Call& call, const PagedSequence& s, double share) {
    if (!is_cut(call, s, share)) return 0;
    return call.num_splits(s) * call.shape.num_kv_heads * Softmax::bytes(call.num_lanes(s), call.padded);
  }
  void fill(const Call& call, double share) const {
    tasks[0] = slots[0] = 0;
    for (int64_t i = 0; i < call.args.num_sequences; ++i) {
      const PagedSequence& s = call.args.sequences[i];
      const int64_t count = is_cut(call, s, share) ? call.num_splits(s) : call.num_tiles(s);
      tasks[i + 1] = tasks[i] + count * call.shape.num_kv_heads;
      slots[i + 1] = slots[i] + slot_bytes(call, s, share);
    }
  }
  bool is_cut(int64_t sequence) const { return slots[sequence + 1] > slots[sequence]; }
  Softmax slot(const Call& call, int64_t sequence, int64_t split, int64_t kv_head) const {
    const int64_t lanes = call.num_lanes(call.args.sequences[sequence]);
    const int64_t index = split * call.shape.num_kv_heads + kv_head;
    Arena at(parts + slots[sequence] + index * Softmax::bytes(lanes, call.padded));
    return Softmax::make(at, lanes, call.padded);
  }
};

Task task_at(const Call& call, const Plan& plan, int64_t index) {
  const int64_t i = find_span(plan.tasks, call.args.num_sequences, index);
  const PagedSequence& s = call.args.sequences[i];
  // Heads turn fastest: they share the pages of their keys.
  const int64_t part = (index - plan.tasks[i]) / call.shape.num_kv_heads;
  Task task{.sequence = s, .index = i, .count = call.num_lanes(s), .is_part = plan.is_cut(i)};
  task.kv_head = int((index - plan.tasks[i]) % call.shape.num_kv_heads);
  if (task.is_part) {
    task.split = call.first_split(s, 0) + part, task.end_split = task.split + 1;
    return task;
  }
  task.first = (call.num_tiles(s) - 1 - part) * kTaskLanes;  // the longest first
  task.count = std::min<int64_t>(kTaskLanes, task.count - task.first);
  task.split = call.first_split(s, task.first);
  task.end_split = ceil_div(call.limit(s, task.first + task.count - 1), kSplitKeys);
  return task;
}

// Calls body(element of the queries, element of the pool); what is multiplied two at a time is bf16 on both sides.
template <class Op, class Body>
void with_elements(const PagedAttentionArgs& args, Body&& body) {
  if constexpr (Op::kPerWord == 2)
    body(BFloat16(), BFloat16());
  else
    with_element(args.q, [&](auto q) { with_pool_element(args, [&](auto pool) { body(q, pool); }); });
}

template <class Op>
void run_task(const Call& call, const Plan& plan, const Task& task, const TilePlace& after, State t) {
  with_elements<Op>(call.args, [&](auto q, auto) { set_lanes<Op, decltype(q)>(call, task, t); });
  if (task.is_part)
    t.split = plan.slot(call, task.index, task.split - call.first_split(task.sequence, 0), task.kv_head);
  else
    t.all.clear(task.count, call.padded);
  for (int64_t split = task.split; split < task.end_split; ++split) {
    const TilePlace next = split + 1 < task.end_split
                               ? TilePlace{&task.sequence, first_key(call, task, split + 1), task.kv_head}
                               : after;
    with_elements<Op>(call.args, [&](auto, auto e) { run_split<Op, decltype(e)>(call, task, split, next, t); });
    if (!task.is_part) join(call, t, t.split, task.count);
  }
  if (!task.is_part) with_element(call.args.y, [&](auto element) { finish<decltype(element)>(call, task, t); });
}

void join_slots(const Call& call, const Plan& plan, int64_t sequence, int kv_head, const State& t) {
  const PagedSequence& s = call.args.sequences[sequence];
  const Task task{.sequence = s, .count = call.num_lanes(s), .kv_head = kv_head};
  t.all.clear(task.count, call.padded);
  for (int64_t split = 0; split < call.num_splits(s); ++split)
    join(call, t, plan.slot(call, sequence, split, kv_head), task.count);
  with_element(call.args.y, [&](auto element) { finish<decltype(element)>(call, task, t); });
}

template <class Op>
void run(Stream& stream, const PagedAttentionArgs& args) {
  const Call call(args);
  const double share = Plan::share(call, stream.team().size());
  const int64_t n = args.num_sequences, num_kv = call.shape.num_kv_heads;
  Arena own, counted;
  State::make(own, call);
  Plan::make(counted, call, share);
  std::byte* base = stream.scratch(0, counted.used() + own.used());
  Arena front(base);
  const Plan plan = Plan::make(front, call, share);
  plan.fill(call, share);
  const auto state = [&](int worker) {
    Arena arena(worker == 0 ? base + counted.used() : stream.scratch(worker, own.used()));
    return State::make(arena, call);
  };
  stream.team().parallel_for(plan.tasks[n], 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      TilePlace after;
      if (const int64_t later = i + stream.team().size(); later < plan.tasks[n]) {  // likely this worker's next
        const Task next = task_at(call, plan, later);
        after = {&next.sequence, first_key(call, next, next.split), next.kv_head};
      }
      run_task<Op>(call, plan, task_at(call, plan, i), after, state(worker));
    }
  });
  if (plan.slots[n] == 0) return;
  stream.team().parallel_for(n * num_kv, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      if (plan.is_cut(i / num_kv)) join_slots(call, plan, i / num_kv, int(i % num_kv), state(worker));
    }
  });
}

void paged_forward(Stream& stream, const PagedAttentionArgs& args, [[maybe_unused]] bool use_bf16_dot) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const bool is_bf16 =
      args.codes == RowCodes::none && args.q.dtype() == DType::bf16 && args.keys.dtype() == DType::bf16;
  if (use_bf16_dot && is_bf16 && __builtin_cpu_supports("avx512bf16")) return run<Bf16Words>(stream, args);
#endif
  run<FloatWords>(stream, args);
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(paged_forward);

void paged_attention(Stream& stream, const PagedAttentionArgs& args, AttentionOptions options) {
  shapes::check_paged_attention(args);
  check_cpu_can(shapes::shape_of(args), args.q);
  if (args.codes == RowCodes::none) check_cpu_can(shapes::shape_of(args), args.keys);
  if (args.q.dim(1) == 0 || args.q.dim(0) == 0) return;
  HWY_DYNAMIC_DISPATCH(paged_forward)(stream, args, options.use_bf16_dot);
}

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  paged_attention(stream, args, AttentionOptions{});
}

}  // namespace weft::cpu
#endif
