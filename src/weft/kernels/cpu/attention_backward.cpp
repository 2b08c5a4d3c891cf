// Attention backward: scores are computed anew from q, k and lse, five products per tile, and no tile leaves the
// cache. Source: Dao, "FlashAttention-2", 2023.
//
// A task owns a chunk of keys and a key/value head, with their dk and dv, and walks over blocks of lanes of every
// span that reads them. Where a span has several chunks they add to dq one after the other, so that the sum has one
// order: a chunk starts on a block when the chunk before it has left it. Tasks are taken in order, hence this cannot
// deadlock, and causal chunks begin staggered, hence they rarely wait.
#include <atomic>
#include <thread>

#include "weft/kernels/cpu/attention_chunks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

constexpr int kBlockLanes = 64;
constexpr int kTileKeys = 64;

// Widths of a head: of queries and keys, and of values.
struct Dims {
  int64_t dim, value_dim;
  explicit Dims(const AttentionShape& s) : dim(s.head_dim), value_dim(s.values_dim()) {}
};

// Keys of a task: k, v, dk and dv of a chunk stay in a quarter to half of a 1 MiB L2.
int64_t chunk_keys(const Dims& d) {
  return std::clamp<int64_t>(32768 / round_up(std::max(d.dim, d.value_dim), 16) / 64 * 64, 64, 512);
}

struct Task {
  int64_t chunk = 0;
  int kv_head = 0;
  const std::atomic<int32_t>* before = nullptr;  // blocks that the chunk before has left
  std::atomic<int32_t>* done = nullptr;          // blocks that this chunk has left
};

struct State {
  float *k, *v;               // words of the chunk's keys and values
  float* k_pairs;             // pairs of the keys
  float *dk, *dv;             // [chunk][padded]
  float *q, *dy;              // columns of words of the block
  float *q_pairs, *dy_pairs;  // pairs of its rows
  float *p, *ds;              // [kTileKeys][kBlockLanes] as words along the lanes
  float* ds_pairs;            // the same as pairs along the keys
  float* exact;               // [kRows][kGroup] probabilities in f32
  float* slope;               // [kRows][kGroup] of capped scores
  float* dq;                  // columns
  float *lse, *delta;         // per lane; lse in exponents of 2
  float *limit, *start;       // the keys that a lane sees
  DropoutLanes dropout;
  BitLanes bits;
  int64_t k_begin = 0;  // of the span

  template <class Op>
  static State make(Arena& a, const Dims& d) {
    const int64_t words = words_of<Op>(d.dim), padded = round_up(d.dim, 16), chunk = chunk_keys(d);
    const int64_t value_words = words_of<Op>(d.value_dim), value_padded = round_up(d.value_dim, 16);
    constexpr int kPer = Op::kPerWord;
    State t;
    t.k = a.take<float>(chunk * words), t.v = a.take<float>(chunk * value_words);
    t.k_pairs = kPer == 1 ? t.k : a.take<float>(chunk / kPer * padded);
    t.dk = a.take<float>(chunk * padded), t.dv = a.take<float>(chunk * value_padded);
    t.q = a.take<float>(kBlockLanes * words), t.dy = a.take<float>(kBlockLanes * value_words);
    t.q_pairs = a.take<float>(kBlockLanes / kPer * padded);
    t.dy_pairs = a.take<float>(kBlockLanes / kPer * value_padded);
    t.p = a.take<float>(kTileKeys * kBlockLanes / kPer), t.ds = a.take<float>(kTileKeys * kBlockLanes / kPer);
    t.ds_pairs = kPer == 1 ? t.ds : a.take<float>(kTileKeys / kPer * kBlockLanes);
    t.exact = a.take<float>(kRows * kGroup), t.slope = a.take<float>(kRows * kGroup);
    t.dq = a.take<float>(kBlockLanes * padded);
    t.lse = a.take<float>(kBlockLanes), t.delta = a.take<float>(kBlockLanes);
    t.limit = a.take<float>(kBlockLanes), t.start = a.take<float>(kBlockLanes);
    t.dropout = {a.take<uint32_t>(kBlockLanes), a.take<uint32_t>(kBlockLanes)};
    t.bits = {a.take<int32_t>(kBlockLanes)};
    return t;
  }
};

template <class Op, class E>
struct Call {
  const AttentionBackwardArgs& args;
  int64_t dim, words, padded;
  int64_t value_dim, value_words, value_padded;
  float scale2;
  ScoreCap cap;

  explicit Call(const AttentionBackwardArgs& a)
      : args(a),
        dim(a.shape.head_dim),
        words(words_of<Op>(dim)),
        padded(round_up(dim, 16)),
        value_dim(a.shape.values_dim()),
        value_words(words_of<Op>(value_dim)),
        value_padded(round_up(value_dim, 16)),
        scale2(a.shape.scale * kLog2E),
        cap(a.shape) {}
  // Of q, dq, y or dy, and of k, dk, v or dv: the width of a head is the tensor's.
  template <class T>
  RowView<T> lanes(const Tensor& t, const SpanLanes& s, int kv_head) const {
    return rows_of<T>(t, args.shape.num_heads, int(t.dim(2)), s.q_begin, kv_head * s.group, s.group);
  }
  template <class T>
  RowView<T> keys(const Tensor& t, int kv_head) const {
    return rows_of<T>(t, args.shape.num_kv_heads, int(t.dim(2)), 0, kv_head, 1);
  }
  void prefetch_lanes(const SpanLanes& s, int kv_head, int64_t first, int64_t end) const {
    const int64_t count = std::min(end, s.num_lanes()) - first;
    for (const Tensor* t : {&args.q, &args.dy, &args.y}) prefetch_rows(lanes<const E>(*t, s, kv_head), first, count);
  }
  void prefetch_keys(int kv_head, int64_t first, int64_t count) const {
    for (const Tensor* t : {&args.k, &args.v}) prefetch_rows(keys<const E>(*t, kv_head), first, count);
  }
};

template <class E>
HWY_INLINE float dot(const E* a, const E* b, int64_t dim) {
  V sum = hn::Zero(df);
  for_each_vector<FloatWords>(dim, [&](int64_t e, auto tail) HWY_ATTR {
    sum =
        hn::MulAdd(load_words<FloatWords, tail.value>(a, e, dim), load_words<FloatWords, tail.value>(b, e, dim), sum);
  });
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

// Everything about a block of lanes that its tiles share.
template <class Op, class E>
HWY_NOINLINE void load_block(const Call<Op, E>& call, const State& t, const SpanLanes& s, int kv_head, int64_t first,
                             int64_t count) {
  const AttentionBackwardArgs& args = call.args;
  const auto q = call.template lanes<const E>(args.q, s, kv_head);
  const auto dy = call.template lanes<const E>(args.dy, s, kv_head);
  const auto y = call.template lanes<const E>(args.y, s, kv_head);
  pack_columns<Op, E>(t.q, q, first, count);
  pack_columns<Op, E>(t.dy, dy, first, count);
  pack_pairs<Op, E>(t.q_pairs, q, first, count);
  pack_pairs<Op, E>(t.dy_pairs, dy, first, count);
  const float* lse = args.lse.data<float>();
  const int64_t num_tokens = args.q.dim(0);
  for (int64_t i = 0; i < kBlockLanes; ++i) {
    const int64_t lane = first + std::min(i, count - 1);
    const float row = lse[(kv_head * s.group + lane % s.group) * num_tokens + s.q_begin + lane / s.group];
    // exp(score - infinity) is 0: lanes past the end and lanes that see nothing take no part.
    t.lse[i] = i < count && row != -HUGE_VALF ? row * kLog2E : HUGE_VALF;
    t.delta[i] = i < count ? dot(dy[lane], y[lane], call.value_dim) : 0;
    t.limit[i] = float(s.limit(lane)), t.start[i] = float(s.start(lane));
  }
  if (args.dropout.p > 0) {
    set_dropout_lanes(t.dropout, args.shape, s, kv_head, first, kBlockLanes);
  }
  if (const SelectedKeys selected(args.key_bits, args.k); selected.is_on())
    selected.set_lanes(t.bits, s, first, kBlockLanes, first + count - 1);
}

// The rows of kRows keys and kCols vectors of lanes that are at hand.
struct Corner {
  int64_t lane, row, key;  // in the block, the tile, the span
  bool masked;
};

// Leaves P^T of a corner: exact in t.exact, with dropout and rounded in t.p.
template <class Op, class E, int kCols, bool kDropout>
HWY_INLINE void probabilities(const Call<Op, E>& call, const State& t, const Corner& at, V (*acc)[kRows]) {
  const DropoutKey& key = call.args.dropout;
  const bool is_windowed = call.args.shape.window > 0;
  const SelectedKeys selected(call.args.key_bits, call.args.k);
  const V scale = hn::Set(df, call.scale2);
  HWY_UNROLL(2)
  for (int c = 0; c < kCols; ++c) {
    const int64_t lane = at.lane + c * kWide;
    const V lse = hn::LoadU(df, t.lse + lane), limit = hn::LoadU(df, t.limit + lane);
    const V start = hn::LoadU(df, t.start + lane);
    if (call.cap.is_on()) {
      for (int r = 0; r < kRows; ++r) {
        V slope;
        acc[c][r] = call.cap.with_slope(acc[c][r], slope);
        hn::StoreU(slope, df, t.slope + r * kGroup + c * kWide);
      }
    }
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      V p = exp2<Op>(hn::MulSub(acc[c][r], scale, lse));
      if (at.masked) p = hn::IfThenElseZero(hn::Gt(limit, hn::Set(df, float(at.key + r))), p);
      if (is_windowed) p = hn::IfThenElseZero(hn::Ge(hn::Set(df, float(at.key + r)), start), p);
      if (selected.is_on()) p = selected.only({t.bits.row + lane}, t.k_begin + at.key + r, p, hn::Zero(df));
      hn::StoreU(p, df, t.exact + r * kGroup + c * kWide);
      if constexpr (kDropout) {
        p = hn::Mul(p, dropout_factor(key, {t.dropout.low + lane, t.dropout.high + lane}, at.key + r));
      }
      acc[c][r] = p;
    }
  }
}

// From dP^T to dS^T, without the scale of the scores, which dq and dk get at the end.
template <int kCols, bool kDropout>
HWY_INLINE void score_gradients(const DropoutKey& key, bool is_capped, const State& t, const Corner& at,
                                V (*acc)[kRows]) {
  HWY_UNROLL(2)
  for (int c = 0; c < kCols; ++c) {
    const int64_t lane = at.lane + c * kWide;
    const V delta = hn::LoadU(df, t.delta + lane);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      V dp = acc[c][r];
      if constexpr (kDropout) {
        dp = hn::Mul(dp, dropout_factor(key, {t.dropout.low + lane, t.dropout.high + lane}, at.key + r));
      }
      acc[c][r] = hn::Mul(hn::LoadU(df, t.exact + r * kGroup + c * kWide), hn::Sub(dp, delta));
      if (is_capped) acc[c][r] = hn::Mul(acc[c][r], hn::LoadU(df, t.slope + r * kGroup + c * kWide));
    }
  }
}

// Stores a corner as words along the lanes.
template <class Op, int kCols>
HWY_INLINE void store_words(float* dst, const Corner& at, V (*acc)[kRows]) {
  float* out = dst + at.row * (kBlockLanes / Op::kPerWord) + at.lane / Op::kPerWord;
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r, out += kBlockLanes / Op::kPerWord) {
    if constexpr (Op::kPerWord == 1) {
      HWY_UNROLL(2)
      for (int c = 0; c < kCols; ++c) hn::StoreU(acc[c][r], df, out + c * kWide);
    } else {
      const V words = Op::round(acc[0][r], acc[kCols - 1][r]);
      if constexpr (kCols == 2) {
        hn::StoreU(words, df, out);
      } else {
        hn::StoreU(hn::LowerHalf(hn::Half<decltype(df)>(), words), hn::Half<decltype(df)>(), out);
      }
    }
  }
}

template <class Op, int kCols>
HWY_INLINE void multiply_corner(const float* a, int64_t words, const float* b, int64_t k, V (*acc)[kRows]) {
  HWY_UNROLL(2)
  for (int c = 0; c < kCols; ++c) {
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) acc[c][r] = hn::Zero(df);
  }
  if constexpr (kCols == 2) {
    multiply<Op, 2>(a, words, 1, b, kGroup, k, acc);
  } else {
    multiply_single<Op>(a, words, 1, b, kGroup, k, acc[0]);
  }
}

// P^T and dS^T of one corner.
template <class Op, class E, int kCols, bool kDropout>
HWY_NOINLINE void corner(const Call<Op, E>& call, const State& t, const Corner& at, int64_t chunk_row) {
  const auto column = [&](int64_t words) { return at.lane / kGroup * words * kGroup + at.lane % kGroup; };
  V acc[kCols][kRows];
  multiply_corner<Op, kCols>(t.k + chunk_row * call.words, call.words, t.q + column(call.words),
                             ceil_div(call.dim, Op::kPerWord), acc);
  probabilities<Op, E, kCols, kDropout>(call, t, at, acc);
  store_words<Op, kCols>(t.p, at, acc);
  multiply_corner<Op, kCols>(t.v + chunk_row * call.value_words, call.value_words, t.dy + column(call.value_words),
                             ceil_div(call.value_dim, Op::kPerWord), acc);
  score_gradients<kCols, kDropout>(call.args.dropout, call.cap.is_on(), t, at, acc);
  store_words<Op, kCols>(t.ds, at, acc);
  if constexpr (Op::kPerWord == 2) {
    HWY_UNROLL(2)
    for (int c = 0; c < kCols; ++c) {
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; r += 2) {
        hn::StoreU(Op::round_pairs(acc[c][r], acc[c][r + 1]), df,
                   t.ds_pairs + (at.row + r) / 2 * kBlockLanes + at.lane + c * kWide);
      }
    }
  }
}

// One tile of keys against one block of lanes. `row` is the tile's first key in the chunk, `key` in the span.
template <class Op, class E, bool kDropout>
HWY_NOINLINE void tile(const Call<Op, E>& call, const State& t, const SpanLanes& s, int64_t first, int64_t count,
                       int64_t row, int64_t key, int64_t num_keys) {
  const int64_t num_wide = ceil_div(count, kWide);
  const auto depth = [&](int64_t wide) {
    if (wide >= num_wide) return int64_t(0);
    return round_up(std::clamp<int64_t>(int64_t(t.limit[(wide + 1) * kWide - 1]) - key, 0, num_keys), kRows);
  };
  for (int64_t wide = 0; wide < num_wide; wide += 2) {
    const int64_t lane = wide * kWide, depth0 = depth(wide), depth1 = depth(wide + 1);
    const int64_t both = std::min(depth0, depth1), deepest = std::max(depth0, depth1);
    const int64_t single = lane + (depth1 > depth0 ? kWide : 0), open = int64_t(t.limit[lane]) - key;
    for (int64_t j = 0; j < both; j += kRows) {
      corner<Op, E, 2, kDropout>(call, t, {lane, j, key + j, j + kRows > open}, row + j);
    }
    for (int64_t j = both; j < deepest; j += kRows) {
      corner<Op, E, 1, kDropout>(call, t, {single, j, key + j, true}, row + j);
    }
    constexpr int kPer = Op::kPerWord;
    const float* k = t.k_pairs + row / kPer * call.padded;
    float* dq = t.dq + lane / kGroup * call.padded * kGroup;
    const float* ds = t.ds_pairs + both / kPer * kBlockLanes + single;
    for (int64_t e = 0; e < call.dim; e += kRows) {
      if (both) {
        multiply_accumulate<Op>(dq + e * kGroup, kGroup, kGroup, k + e, 1, call.padded, t.ds_pairs + lane,
                                kBlockLanes, both / kPer);
      }
      if (deepest > both) {
        multiply_accumulate<Op>(dq + e * kGroup + single % kGroup, kGroup, kWide, k + both / kPer * call.padded + e,
                                1, call.padded, ds, kBlockLanes, (deepest - both) / kPer);
      }
    }
  }
  constexpr int64_t kLaneWords = kBlockLanes / Op::kPerWord;
  for (int64_t j = 0; j < num_keys; j += kRows) {
    const int64_t begin = std::clamp<int64_t>(s.first_lane(key + j) - first, 0, count) / Op::kPerWord;
    const int64_t n = ceil_div(count, Op::kPerWord) - begin;
    if (n <= 0) continue;
    multiply_accumulate<Op>(t.dv + (row + j) * call.value_padded, call.value_padded, call.value_padded,
                            t.p + j * kLaneWords + begin, kLaneWords, 1, t.dy_pairs + begin * call.value_padded,
                            call.value_padded, n);
    multiply_accumulate<Op>(t.dk + (row + j) * call.padded, call.padded, call.padded, t.ds + j * kLaneWords + begin,
                            kLaneWords, 1, t.q_pairs + begin * call.padded, call.padded, n);
  }
}

void wait_until_above(const std::atomic<int32_t>& counter, int64_t block) {
  for (int spins = 0; counter.load(std::memory_order_acquire) <= block; ++spins) {
    if (spins > 1000) std::this_thread::yield();
  }
}

template <class E>
HWY_INLINE void store_rows(RowView<E> rows, int64_t first, int64_t count, const float* src, int64_t ld,
                           float factor) {
  const V scale = hn::Set(df, factor);
  for (int64_t j = 0; j < count; ++j) {
    E* row = rows[first + j];
    for_each_vector<FloatWords>(rows.dim, [&](int64_t e, auto tail) HWY_ATTR {
      store_floats<tail.value>(row, e, rows.dim, hn::Mul(scale, hn::LoadU(df, src + j * ld + e)));
    });
  }
}

// The blocks of one span that a chunk walks over.
struct Walk {
  SpanLanes s;
  const ChunkedSpan* span;
  int64_t key_begin, key_end;  // of the chunk, in the span
  int64_t first_block;

  Walk(const AttentionShape& shape, const ChunkPlan& plan, const ChunkedSpan* chunked, int64_t chunk)
      : s(shape, chunked->span), span(chunked) {
    key_begin = plan.chunks[chunk].k_begin - s.k_begin, key_end = plan.chunks[chunk].k_end - s.k_begin;
    first_block = is_first(chunk) ? 0 : s.first_lane(key_begin) / kBlockLanes;
  }
  bool is_first(int64_t chunk) const { return span->first_chunk == chunk; }
};

// The first span at or after `span` that reads a chunk, or the end of its cluster.
const ChunkedSpan* find_reader(const ChunkPlan& plan, const ChunkedSpan* span, int64_t chunk) {
  const ChunkedSpan* const end = plan.spans + plan.clusters[plan.chunks[chunk].cluster].end_span;
  while (span != end && !span->covers(chunk)) ++span;
  return span;
}
const ChunkedSpan* first_reader(const ChunkPlan& plan, int64_t chunk) {
  return find_reader(plan, plan.spans + plan.clusters[plan.chunks[chunk].cluster].first_span, chunk);
}

// What comes after a block: the task's next, or the first of the task this worker likely takes next.
struct Ahead {
  const SpanLanes* s = nullptr;
  int kv_head = 0;
  int64_t first_lane = 0;
  int64_t key_begin = 0, num_keys = 0;  // rows of k and v to prefetch under this block
};

template <class Op, class E>
void run_block(const Call<Op, E>& call, State t, const Walk& walk, const Task& task, int64_t block,
               const Ahead& ahead) {
  const SpanLanes& s = walk.s;
  t.k_begin = s.k_begin;
  const int64_t first = block * kBlockLanes, count = std::min<int64_t>(kBlockLanes, s.num_lanes() - first);
  const int64_t limit = s.limit(first + count - 1), key_end = std::min(walk.key_end, limit);
  const int64_t num_tiles = ceil_div(key_end - walk.key_begin, kTileKeys);
  // Tiles before every lane's window are left out.
  const int64_t first_tile = std::max<int64_t>(s.start(first) - walk.key_begin, 0) / kTileKeys;
  if (first_tile < num_tiles) load_block<Op, E>(call, t, s, task.kv_head, first, count);
  if (!walk.is_first(task.chunk)) wait_until_above(*task.before, walk.span->first_block + block);
  if (walk.is_first(task.chunk)) std::memset(t.dq, 0, size_t(kBlockLanes * call.padded) * sizeof(float));
  for (int64_t i = first_tile; i < num_tiles; ++i) {
    const int64_t row = i * kTileKeys, key = walk.key_begin + row,
                  num_keys = std::min<int64_t>(kTileKeys, key_end - key);
    if (ahead.s) {
      const int64_t key_from = ahead.num_keys * i / num_tiles, key_to = ahead.num_keys * (i + 1) / num_tiles;
      call.prefetch_lanes(*ahead.s, ahead.kv_head, ahead.first_lane + kBlockLanes * i / num_tiles,
                          ahead.first_lane + kBlockLanes * (i + 1) / num_tiles);
      call.prefetch_keys(ahead.kv_head, ahead.key_begin + key_from, key_to - key_from);
    }
    if (call.args.dropout.p > 0) {
      tile<Op, E, true>(call, t, s, first, count, row, key, num_keys);
    } else {
      tile<Op, E, false>(call, t, s, first, count, row, key, num_keys);
    }
  }
  if (limit <= walk.key_end) {  // no later chunk adds to this block
    float scale[kBlockLanes];
    std::fill_n(scale, kBlockLanes, call.args.shape.scale);
    unpack_columns<E>(call.template lanes<E>(call.args.dq, s, task.kv_head), first, count, t.dq, scale);
  }
  task.done->store(int32_t(walk.span->first_block + block) + 1, std::memory_order_release);
}

// Everything about a chunk's keys that its blocks share.
template <class Op, class E>
void load_chunk(const Call<Op, E>& call, const State& t, const KeyChunk& chunk, int kv_head) {
  const AttentionBackwardArgs& args = call.args;
  const int64_t num_keys = chunk.k_end - chunk.k_begin, padded_keys = round_up(num_keys, kRows);
  pack_rows<Op, E>(t.k, call.template keys<const E>(args.k, kv_head), chunk.k_begin, num_keys);
  pack_rows<Op, E>(t.v, call.template keys<const E>(args.v, kv_head), chunk.k_begin, num_keys);
  // Rows past the end only meet probabilities of 0, but must be finite.
  const size_t extra = size_t(padded_keys - num_keys) * sizeof(float);
  std::memset(t.k + num_keys * call.words, 0, extra * size_t(call.words));
  std::memset(t.v + num_keys * call.value_words, 0, extra * size_t(call.value_words));
  if (Op::kPerWord > 1) {
    pack_pairs<Op, E>(t.k_pairs, call.template keys<const E>(args.k, kv_head), chunk.k_begin, num_keys);
  }
  std::memset(t.dk, 0, size_t(padded_keys * call.padded) * sizeof(float));
  std::memset(t.dv, 0, size_t(padded_keys * call.value_padded) * sizeof(float));
}

template <class Op, class E>
void run_task(const Call<Op, E>& call, const ChunkPlan& plan, float* dq, const Task& task, const Task* next,
              std::byte* scratch) {
  Arena arena(scratch);
  const State t = State::make<Op>(arena, Dims(call.args.shape));
  const AttentionShape& shape = call.args.shape;
  const KeyChunk& chunk = plan.chunks[task.chunk];
  load_chunk<Op, E>(call, t, chunk, task.kv_head);
  const ChunkedSpan* const end = plan.spans + plan.clusters[chunk.cluster].end_span;
  for (const ChunkedSpan *span = first_reader(plan, task.chunk), *later; span != end; span = later) {
    later = find_reader(plan, span + 1, task.chunk);
    const Walk walk(shape, plan, span, task.chunk);
    for (int64_t block = walk.first_block; block < span->num_blocks; ++block) {
      State at = t;
      if (span->is_cut()) {
        at.dq = dq + (span->dq_block + task.kv_head * span->num_blocks + block) * kBlockLanes * call.padded;
      }
      if (block + 1 < span->num_blocks) {
        const Ahead ahead{.s = &walk.s, .kv_head = task.kv_head, .first_lane = (block + 1) * kBlockLanes};
        run_block<Op, E>(call, at, walk, task, block, ahead);
      } else if (later != end) {
        const Walk then(shape, plan, later, task.chunk);
        run_block<Op, E>(call, at, walk, task, block, {&then.s, task.kv_head, then.first_block * kBlockLanes});
      } else if (next) {
        const Walk then(shape, plan, first_reader(plan, next->chunk), next->chunk);
        const KeyChunk& keys = plan.chunks[next->chunk];
        run_block<Op, E>(call, at, walk, task, block,
                         {&then.s, next->kv_head, then.first_block * kBlockLanes, keys.k_begin,
                          std::min<int64_t>(keys.k_end - keys.k_begin, 256)});
      } else {
        run_block<Op, E>(call, at, walk, task, block, {});
      }
    }
  }
  const int64_t num_keys = chunk.k_end - chunk.k_begin;
  store_rows<E>(call.template keys<E>(call.args.dk, task.kv_head), chunk.k_begin, num_keys, t.dk, call.padded,
                shape.scale);
  store_rows<E>(call.template keys<E>(call.args.dv, task.kv_head), chunk.k_begin, num_keys, t.dv, call.value_padded,
                1);
}

// Rows of dq, dk and dv that no task writes.
void clear_the_rest(Stream& stream, const AttentionBackwardArgs& args, const ChunkPlan& plan) {
  for_each_blind_rows(args.shape, args.q.dim(0),
                      [&](int64_t first, int64_t count) { zero_rows(stream, args.dq, first, count); });
  int64_t row = 0;
  const auto clear_keys_until = [&](int64_t end) {
    if (end == row) return;
    zero_rows(stream, args.dk, row, end - row);
    zero_rows(stream, args.dv, row, end - row);
  };
  for (int64_t i = 0; i < plan.num_chunks; ++i) {
    clear_keys_until(plan.chunks[i].k_begin);
    row = plan.chunks[i].k_end;
  }
  clear_keys_until(args.k.dim(0));
}

// What all tasks share, at the front of worker 0's scratch.
struct Shared {
  ChunkPlan plan;
  std::atomic<int32_t>* done;  // per task
  float* dq;                   // sums of the spans that are cut

  static Shared make(Arena& a, const AttentionShape& s, const ChunkPlan& counts) {
    Shared shared;
    shared.plan = ChunkPlan::make(a, s, chunk_keys(Dims(s)));
    shared.done = a.take<std::atomic<int32_t> >(counts.num_chunks * s.num_kv_heads);
    shared.dq = a.take<float>(counts.num_dq_blocks * kBlockLanes * round_up(s.head_dim, 16));
    return shared;
  }
};

// The plan, in scratch that is overwritten by the next use: for what it counts.
ChunkPlan count_chunks(Stream& stream, const AttentionShape& s) {
  const int64_t keys = chunk_keys(Dims(s));
  Arena counted;
  ChunkPlan::make(counted, s, keys);
  Arena front(stream.scratch(0, counted.used()));
  ChunkPlan plan = ChunkPlan::make(front, s, keys);
  plan.fill(s, keys, kBlockLanes);
  return plan;
}

template <class Op, class E>
void run(Stream& stream, const AttentionBackwardArgs& args) {
  const Call<Op, E> call(args);
  const AttentionShape& shape = args.shape;
  const int64_t num_kv = shape.num_kv_heads;
  const ChunkPlan counts = count_chunks(stream, shape);
  const int64_t all_tasks = counts.num_chunks * num_kv;
  Arena own, counted;
  State::make<Op>(own, Dims(shape));
  Shared::make(counted, shape, counts);
  std::byte* base = stream.scratch(0, counted.used() + own.used());
  Arena front(base);
  Shared shared = Shared::make(front, shape, counts);
  ChunkPlan& plan = shared.plan;
  plan.fill(shape, chunk_keys(Dims(shape)), kBlockLanes);
  for (int64_t i = 0; i < all_tasks; ++i) new (shared.done + i) std::atomic<int32_t>(0);
  clear_the_rest(stream, args, plan);
  const auto task_at = [&](int64_t i) {  // heads turn fastest
    return Task{.chunk = i / num_kv,
                .kv_head = int(i % num_kv),
                .before = i >= num_kv ? shared.done + i - num_kv : nullptr,
                .done = shared.done + i};
  };
  stream.team().parallel_for(all_tasks, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t later = std::min(i + stream.team().size(), all_tasks - 1);  // likely this worker's next
      const Task task = task_at(i), next = task_at(later);
      run_task<Op, E>(call, plan, shared.dq, task, later > i ? &next : nullptr,
                      worker == 0 ? base + counted.used() : stream.scratch(worker, own.used()));
    }
  });
}

void backward(Stream& stream, const AttentionBackwardArgs& args, [[maybe_unused]] bool use_bf16_dot) {
  if (args.q.dtype() == DType::f32) return run<FloatWords, float>(stream, args);
  if (args.q.dtype() == DType::f16) return run<FloatWords, Float16>(stream, args);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if (use_bf16_dot && has_bf16_pairs()) return run<Bf16Words, BFloat16>(stream, args);
#endif
  run<FloatWords, BFloat16>(stream, args);
}

}  // namespace
}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(backward);

void attention_backward(Stream& stream, const AttentionBackwardArgs& args, AttentionOptions options) {
  shapes::check_attention_backward(args);
  check_cpu_can(args.shape, args.q);
  check(!args.bias, "attention on the CPU has no gradient of a bias by distance: use the reference kernels");
  if (args.shape.num_heads == 0) {
    zero_rows(stream, args.dk, 0, args.k.dim(0));
    zero_rows(stream, args.dv, 0, args.k.dim(0));
    return;
  }
  HWY_DYNAMIC_DISPATCH(backward)(stream, args, options.use_bf16_dot);
}

void attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  attention_backward(stream, args, AttentionOptions{});
}

}  // namespace weft::cpu
#endif
