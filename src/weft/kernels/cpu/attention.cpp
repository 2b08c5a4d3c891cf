// Attention forward, tile by tile with a running softmax: no score ever leaves the cache.
// Source: Dao, "FlashAttention-2", 2023. Scores are held transposed, S^T [keys, lanes], so that maxima and sums run
// down vectors, and S^T = K Q^T and O^T = V^T P^T read K and V as they lie in memory.
#include "weft/kernels/cpu/attention_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/attention_decode-inl.h"
#include "weft/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTaskLanes = 256;  // that share the packing of a tile of keys
constexpr int kTileKeys = 64;    // scores of a tile and its keys and values stay in L1
constexpr int kSplitLanes = 32;  // spans with at most so many lanes ...
constexpr int kSplitKeys = 512;  // ... are also cut by keys, so that decoding uses every core

// One task: lanes [first, first + count) of a span and key/value head, against keys [key_begin, key_end).
struct Task {
  int64_t first = 0, count = 0, key_begin = 0, key_end = 0;
  int kv_head = 0;
  float* partial = nullptr;  // where to leave (O, maximum, sum) when the keys are only some
};

// The running state of a task's lanes and the tile of keys at hand.
struct State {
  float* q;        // columns of words
  float* o;        // columns, sums of p v
  float* maximum;  // of the scores, not yet scaled
  float* sum;      // of exp(score - maximum)
  float* limit;    // behind the keys the lane sees
  float* start;    // and where they begin
  float* alpha;    // what the tile rescales o and sum by
  float* k;        // words of the keys
  float* v;        // pairs of the values
  float* s;        // [kTileKeys][kGroup]
  float* p;        // pairs of the probabilities; s itself for f32
  DropoutLanes dropout;
  BiasLanes bias;
  BitLanes bits;
  int64_t k_begin = 0;  // of the span

  template <class Op>
  static State make(Arena& a, int64_t dim, int64_t value_dim) {
    const int64_t words = words_of<Op>(dim), padded = round_up(value_dim, 16);
    State t;
    t.q = a.take<float>(kTaskLanes * words), t.o = a.take<float>(kTaskLanes * padded);
    t.maximum = a.take<float>(kTaskLanes), t.sum = a.take<float>(kTaskLanes), t.limit = a.take<float>(kTaskLanes);
    t.start = a.take<float>(kTaskLanes);
    t.alpha = a.take<float>(kTaskLanes), t.k = a.take<float>(kTileKeys * words);
    t.v = a.take<float>(kTileKeys / Op::kPerWord * padded), t.s = a.take<float>(kTileKeys * kGroup);
    t.p = Op::kPerWord == 1 ? t.s : a.take<float>(kTileKeys / Op::kPerWord * kGroup);
    t.dropout = {a.take<uint32_t>(kTaskLanes), a.take<uint32_t>(kTaskLanes)};
    t.bias = {a.take<int32_t>(kTaskLanes), a.take<int32_t>(kTaskLanes)};
    t.bits = {a.take<int32_t>(kTaskLanes)};
    return t;
  }
};

// How far down the tile's keys each of a group's two vectors has to look; multiples of kRows.
struct Depth {
  int64_t rows[2];
  int64_t both() const { return std::min(rows[0], rows[1]); }
  int64_t deepest() const { return std::max(rows[0], rows[1]); }
  int longer() const { return rows[1] > rows[0]; }
};

template <class Op>
struct Call {
  const AttentionArgs& args;
  int64_t dim, value_dim, words, padded;  // padded: of values
  float scale2;                           // to exponents of 2

  explicit Call(const AttentionArgs& a)
      : args(a),
        dim(a.shape.head_dim),
        value_dim(a.shape.values_dim()),
        words(words_of<Op>(dim)),
        padded(round_up(value_dim, 16)),
        scale2(a.shape.scale * kLog2E) {}
  bool is_windowed() const { return args.shape.window > 0; }
};

// Which of a key's lanes see it.
template <class Op>
HWY_INLINE auto sees(const Call<Op>& call, V key, V limit, V start) {
  const auto before = hn::Gt(limit, key);
  return call.is_windowed() ? hn::And(before, hn::Ge(key, start)) : before;
}

// S^T of one group and tile, masked, and the maxima it raises.
template <class Op>
HWY_INLINE void score_tile(const Call<Op>& call, const State& t, int64_t group, int64_t key, Depth depth,
                           V* maximum) {
  const float* q = t.q + group * call.words * kGroup;
  const float* limit = t.limit + group * kGroup;
  const float* start = t.start + group * kGroup;
  const V limits[2] = {hn::LoadU(df, limit), hn::LoadU(df, limit + kWide)};
  const V starts[2] = {hn::LoadU(df, start), hn::LoadU(df, start + kWide)};
  // Rows from `closed` on and before `open` are seen by every lane.
  const int64_t open = int64_t(limit[0]) - key, closed = int64_t(start[kGroup - 1]) - key;
  const ScoreCap cap(call.args.shape);
  const ScoreBias bias(call.args.bias, call.args.shape.scale);
  const auto bias_lanes = [&](int c) {
    const int64_t lane = group * kGroup + c * kWide;
    return BiasLanes{t.bias.position + lane, t.bias.row + lane};
  };
  const SelectedKeys selected(call.args.key_bits, call.args.k);
  const auto only_selected = [&](int c, int64_t row, V x) HWY_ATTR {
    const BitLanes lanes{t.bits.row + group * kGroup + c * kWide};
    return selected.only(lanes, t.k_begin + key + row, x, hn::Set(df, -HUGE_VALF));
  };
  const int64_t words = ceil_div(call.dim, Op::kPerWord);
  int64_t j = 0;
  for (; j < depth.both(); j += kRows) {
    V acc[2][kRows];
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) acc[0][r] = acc[1][r] = hn::Zero(df);
    multiply<Op, 2>(t.k + j * call.words, call.words, 1, q, kGroup, words, acc);
    HWY_UNROLL(2)
    for (int c = 0; c < 2; ++c) {
      if (cap.is_on()) {
        for (int r = 0; r < kRows; ++r) acc[c][r] = cap(acc[c][r]);
      }
      if (bias.is_on()) {
        for (int r = 0; r < kRows; ++r) acc[c][r] = hn::Add(acc[c][r], bias.of_lanes(bias_lanes(c), key + j + r));
      }
      if (selected.is_on()) {
        for (int r = 0; r < kRows; ++r) acc[c][r] = only_selected(c, j + r, acc[c][r]);
      }
      if (j + kRows > open || j < closed) {
        HWY_UNROLL(8)
        for (int r = 0; r < kRows; ++r) {
          const auto seen = sees(call, hn::Set(df, float(key + j + r)), limits[c], starts[c]);
          acc[c][r] = hn::IfThenElse(seen, acc[c][r], hn::Set(df, -HUGE_VALF));
        }
      }
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        maximum[c] = hn::Max(maximum[c], acc[c][r]);
        hn::StoreU(acc[c][r], df, t.s + (j + r) * kGroup + c * kWide);
      }
    }
  }
  const int c = depth.longer();
  for (; j < depth.deepest(); j += kRows) {
    V acc[kRows];
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) acc[r] = hn::Zero(df);
    multiply_single<Op>(t.k + j * call.words, call.words, 1, q + c * kWide, kGroup, words, acc);
    if (cap.is_on()) {
      for (int r = 0; r < kRows; ++r) acc[r] = cap(acc[r]);
    }
    if (bias.is_on()) {
      for (int r = 0; r < kRows; ++r) acc[r] = hn::Add(acc[r], bias.of_lanes(bias_lanes(c), key + j + r));
    }
    if (selected.is_on()) {
      for (int r = 0; r < kRows; ++r) acc[r] = only_selected(c, j + r, acc[r]);
    }
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const auto seen = sees(call, hn::Set(df, float(key + j + r)), limits[c], starts[c]);
      acc[r] = hn::IfThenElse(seen, acc[r], hn::Set(df, -HUGE_VALF));
      maximum[c] = hn::Max(maximum[c], acc[r]);
      hn::StoreU(acc[r], df, t.s + (j + r) * kGroup + c * kWide);
    }
  }
}

// S^T to P^T for `rows` rows of one vector of lanes; returns their sum, before dropout.
template <class Op, bool kDropout>
HWY_INLINE V exp_tile(const Call<Op>& call, const State& t, int64_t lane, int64_t key, int64_t rows, V maximum) {
  const V scale = hn::Set(df, call.scale2), shift = hn::Mul(maximum, scale);
  const int64_t column = lane % kGroup;
  const DropoutLanes dropout{t.dropout.low + lane, t.dropout.high + lane};
  V sum = hn::Zero(df);
  const auto probability = [&](int64_t j) HWY_ATTR {
    V p = exp2<Op>(hn::MulSub(hn::LoadU(df, t.s + j * kGroup + column), scale, shift));
    sum = hn::Add(sum, p);
    if constexpr (kDropout) p = hn::Mul(p, dropout_factor(call.args.dropout, dropout, key + j));
    return p;
  };
  for (int64_t j = 0; j < rows; j += Op::kPerWord) {
    if constexpr (Op::kPerWord == 1) {
      hn::StoreU(probability(j), df, t.s + j * kGroup + column);
    } else {
      const V even = probability(j), odd = probability(j + 1);
      hn::StoreU(Op::round_pairs(even, odd), df, t.p + j / 2 * kGroup + column);
    }
  }
  return sum;
}

// O^T = O^T alpha + V^T P^T.
template <class Op>
HWY_INLINE void value_tile(const Call<Op>& call, const State& t, int64_t group, Depth depth, bool fresh) {
  float* o = t.o + group * call.padded * kGroup;
  const float* alpha = t.alpha + group * kGroup;
  const V alphas[2] = {hn::LoadU(df, alpha), hn::LoadU(df, alpha + kWide)};
  const int64_t both = depth.both() / Op::kPerWord, rest = depth.deepest() / Op::kPerWord - both;
  const int longer = depth.longer();
  for (int64_t e = 0; e < call.value_dim; e += kRows) {
    V acc[2][kRows];
    HWY_UNROLL(2)
    for (int c = 0; c < 2; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        acc[c][r] = fresh ? hn::Zero(df) : hn::Mul(alphas[c], hn::LoadU(df, o + (e + r) * kGroup + c * kWide));
      }
    }
    if (both) multiply<Op, 2>(t.v + e, 1, call.padded, t.p, kGroup, both, acc);
    HWY_UNROLL(2)
    for (int c = 0; c < 2; ++c) {
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) hn::StoreU(acc[c][r], df, o + (e + r) * kGroup + c * kWide);
    }
  }
  if (rest == 0) return;
  const float* v = t.v + both * call.padded;
  const float* p = t.p + both * kGroup + longer * kWide;
  for (int64_t e = 0; e < call.value_dim; e += kRows) {
    multiply_accumulate<Op>(o + e * kGroup + longer * kWide, kGroup, kWide, v + e, 1, call.padded, p, kGroup, rest);
  }
}

template <class Op>
HWY_NOINLINE void group_tile(const Call<Op>& call, const State& t, int64_t group, int64_t key, Depth depth,
                             bool fresh) {
  const int64_t lane = group * kGroup;
  if (depth.deepest() == 0) {
    if (fresh) std::memset(t.o + group * call.padded * kGroup, 0, size_t(call.padded) * kGroup * sizeof(float));
    return;
  }
  const V before[2] = {hn::LoadU(df, t.maximum + lane), hn::LoadU(df, t.maximum + lane + kWide)};
  V maximum[2] = {before[0], before[1]};
  score_tile<Op>(call, t, group, key, depth, maximum);
  for (int c = 0; c < 2; ++c) {
    const int64_t at = lane + c * kWide;
    const V alpha = exp2<FloatWords>(hn::Mul(hn::Sub(before[c], maximum[c]), hn::Set(df, call.scale2)));
    const V sum = call.args.dropout.p > 0 ? exp_tile<Op, true>(call, t, at, key, depth.rows[c], maximum[c])
                                          : exp_tile<Op, false>(call, t, at, key, depth.rows[c], maximum[c]);
    hn::StoreU(hn::MulAdd(hn::LoadU(df, t.sum + at), alpha, sum), df, t.sum + at);
    hn::StoreU(maximum[c], df, t.maximum + at);
    hn::StoreU(alpha, df, t.alpha + at);
  }
  value_tile<Op>(call, t, group, depth, fresh);
}

// y and lse of a task's lanes from their state; a lane that saw no key gets 0 and -infinity.
template <class E>
void finish(const AttentionArgs& args, const SpanLanes& s, const Task& task, const State& t) {
  const int group = s.group, first_head = task.kv_head * group;
  const int64_t num_tokens = args.q.dim(0);
  float* lse = args.lse ? args.lse.data<float>() : nullptr;
  for (int64_t i = 0; i < task.count; i += kWide) {
    const V sum = hn::LoadU(df, t.sum + i), one = hn::Set(df, 1.0f);
    const auto blind = hn::Eq(sum, hn::Zero(df));
    const V log = hn::MulAdd(hn::LoadU(df, t.maximum + i), hn::Set(df, args.shape.scale),
                             hn::Log(df, hn::IfThenElse(blind, one, sum)));
    hn::StoreU(hn::IfThenElse(blind, hn::Set(df, -HUGE_VALF), log), df, t.limit + i);
    hn::StoreU(hn::IfThenZeroElse(blind, hn::Div(one, sum)), df, t.alpha + i);
  }
  for (int64_t i = 0; lse && i < task.count; ++i) {
    const int64_t lane = task.first + i, row = group == 1 ? lane : lane / group;
    lse[(first_head + lane - row * group) * num_tokens + s.q_begin + row] = t.limit[i];
  }
  const RowView<E> y =
      rows_of<E>(args.y, args.shape.num_heads, args.shape.values_dim(), s.q_begin, first_head, group);
  unpack_columns<E>(y, task.first, task.count, t.o, t.alpha);
}

struct Partial {
  float *o, *maximum, *sum;
  static int64_t floats(int64_t padded) { return kSplitLanes * (padded + 2); }
  Partial(float* slot, int64_t padded)
      : o(slot), maximum(slot + kSplitLanes * padded), sum(slot + kSplitLanes * (padded + 1)) {}
};

template <class Op, class E>
RowView<const E> lanes_of(const Call<Op>& call, const Tensor& t, const SpanLanes& s, int kv_head) {
  return rows_of<const E>(t, call.args.shape.num_heads, int(call.dim), s.q_begin, kv_head * s.group, s.group);
}
template <class Op, class E>
RowView<const E> keys_of(const Call<Op>& call, const SpanLanes& s, int kv_head) {
  return rows_of<const E>(call.args.k, call.args.shape.num_kv_heads, int(call.dim), s.k_begin, kv_head, 1);
}
template <class Op, class E>
RowView<const E> values_of(const Call<Op>& call, const SpanLanes& s, int kv_head) {
  return rows_of<const E>(call.args.v, call.args.shape.num_kv_heads, int(call.value_dim), s.k_begin, kv_head, 1);
}

// The `part`-th of `parts` of [0, count): a prefetch is spread over the products it hides under.
struct Slice {
  int64_t first, count;
  Slice(int64_t n, int64_t part, int64_t parts)
      : first(std::max<int64_t>(n, 0) * part / parts), count(std::max<int64_t>(n, 0) * (part + 1) / parts - first) {}
};

// Part of what the task after this one, if any, reads first.
template <class Op, class E>
void prefetch_task(const Call<Op>& call, const SpanLanes& s, const Task& task, int64_t part, int64_t parts) {
  const Slice lanes(task.count, part, parts);
  const Slice keys(std::min<int64_t>(kTileKeys, task.key_end - task.key_begin), part, parts);
  prefetch_rows(lanes_of<Op, E>(call, call.args.q, s, task.kv_head), task.first + lanes.first, lanes.count);
  prefetch_rows(keys_of<Op, E>(call, s, task.kv_head), task.key_begin + keys.first, keys.count);
  prefetch_rows(values_of<Op, E>(call, s, task.kv_head), task.key_begin + keys.first, keys.count);
}

// A task of few lanes. Leaves the state a tiled task would.
template <class Op, class E>
void decode_task(const Call<Op>& call, const SpanLanes& s, const Task& task, const State& t) {
  const DecodeState d{.q = t.q,
                      .o = t.v,
                      .s = t.s,
                      .maximum = t.maximum,
                      .sum = t.sum,
                      .limit = t.limit,
                      .start = t.start,
                      .bias = t.bias};
  pack_rows<FloatWords, E>(d.q, lanes_of<Op, E>(call, call.args.q, s, task.kv_head), task.first, task.count);
  const int64_t end = std::min<int64_t>(task.key_end, int64_t(t.limit[task.count - 1]));
  const int64_t begin = std::max<int64_t>(task.key_begin, int64_t(t.start[0]));
  decode<E>(d, keys_of<Op, E>(call, s, task.kv_head), values_of<Op, E>(call, s, task.kv_head), task.count, begin, end,
            call.args.shape, ScoreBias(call.args.bias, call.args.shape.scale));
  for (int64_t lane = 0; lane < task.count; ++lane) {
    for (int64_t e = 0; e < call.padded; ++e) t.o[e * kGroup + lane] = d.o[lane * call.padded + e];
  }
}

template <class Op, class E>
void tiled_task(const Call<Op>& call, const SpanLanes& s, const Task& task, const SpanLanes& next_s, const Task* next,
                const State& t) {
  pack_columns<Op, E>(t.q, lanes_of<Op, E>(call, call.args.q, s, task.kv_head), task.first, task.count);
  const int64_t key_end = std::min<int64_t>(task.key_end, int64_t(t.limit[task.count - 1]));
  // Tiles that lie before every lane's window are left out.
  const int64_t skipped = std::max<int64_t>(int64_t(t.start[0]) - task.key_begin, 0) / kTileKeys * kTileKeys;
  const int64_t key_begin = task.key_begin + skipped;
  if (key_end <= key_begin) std::memset(t.o, 0, size_t(kTaskLanes * call.padded) * sizeof(float));
  const auto k = keys_of<Op, E>(call, s, task.kv_head);
  const auto v = values_of<Op, E>(call, s, task.kv_head);
  const int64_t num_groups = ceil_div(task.count, kGroup), num_wide = ceil_div(task.count, kWide);
  for (int64_t key = key_begin; key < key_end; key += kTileKeys) {
    const int64_t num_keys = std::min<int64_t>(kTileKeys, key_end - key), ahead = key + num_keys;
    pack_rows<Op, E>(t.k, k, key, num_keys);
    pack_pairs<Op, E>(t.v, v, key, num_keys);
    for (int64_t g = 0; g < num_groups; ++g) {
      const Slice slice(std::min<int64_t>(kTileKeys, key_end - ahead), g, num_groups);
      prefetch_rows(k, ahead + slice.first, slice.count);
      prefetch_rows(v, ahead + slice.first, slice.count);
      if (ahead == key_end && next) prefetch_task<Op, E>(call, next_s, *next, g, num_groups);
      Depth depth;
      for (int c = 0; c < 2; ++c) {
        const int64_t limit = 2 * g + c < num_wide ? int64_t(t.limit[g * kGroup + (c + 1) * kWide - 1]) : 0;
        depth.rows[c] = round_up(std::clamp<int64_t>(limit - key, 0, num_keys), kRows);
      }
      if (key + num_keys <= int64_t(t.start[g * kGroup])) depth = {};  // the tile lies before the group's windows
      group_tile<Op>(call, t, g, key, depth, key == key_begin);
    }
  }
}

template <class Op, class E>
void run_task(const Call<Op>& call, const SpanLanes& s, const Task& task, const SpanLanes& next_s, const Task* next,
              std::byte* scratch) {
  Arena arena(scratch);
  State t = State::make<Op>(arena, call.dim, call.value_dim);
  t.k_begin = s.k_begin;
  const int64_t num_groups = ceil_div(task.count, kGroup);
  for (int64_t i = 0; i < num_groups * kGroup; ++i) {
    const int64_t lane = task.first + std::min(i, task.count - 1);
    t.limit[i] = float(s.limit(lane)), t.start[i] = float(s.start(lane));
    t.maximum[i] = kNoMaximum, t.sum[i] = 0;
  }
  if (call.args.dropout.p > 0) {
    set_dropout_lanes(t.dropout, call.args.shape, s, task.kv_head, task.first, num_groups * kGroup);
  }
  if (const SelectedKeys selected(call.args.key_bits, call.args.k); selected.is_on())
    selected.set_lanes(t.bits, s, task.first, num_groups * kGroup, task.first + task.count - 1);
  if (const ScoreBias bias(call.args.bias, call.args.shape.scale); bias.is_on())
    bias.set_lanes(t.bias, s, task.kv_head, task.first, num_groups * kGroup, task.first + task.count - 1);
  if (task.count <= kDecodeLanes && call.args.dropout.p == 0 && !call.args.key_bits) {
    decode_task<Op, E>(call, s, task, t);
  } else {
    tiled_task<Op, E>(call, s, task, next_s, next, t);
  }
  if (!task.partial) return finish<E>(call.args, s, task, t);
  const Partial partial(task.partial, call.padded);
  std::memcpy(partial.o, t.o, size_t(num_groups * kGroup * call.padded) * sizeof(float));
  std::memcpy(partial.maximum, t.maximum, size_t(task.count) * sizeof(float));
  std::memcpy(partial.sum, t.sum, size_t(task.count) * sizeof(float));
}

// Joins the parts of one span and key/value head, in the order of their keys.
template <class Op, class E>
void join(const Call<Op>& call, const SpanLanes& s, const Task& task, const float* parts, int64_t num_parts,
          std::byte* scratch) {
  Arena arena(scratch);
  const State t = State::make<Op>(arena, call.dim, call.value_dim);
  std::fill_n(t.maximum, task.count, kNoMaximum);
  std::fill_n(t.sum, task.count, 0.0f);
  std::memset(t.o, 0, size_t(kTaskLanes * call.padded) * sizeof(float));
  for (int64_t part = 0; part < num_parts; ++part) {
    const Partial from(const_cast<float*>(parts) + part * Partial::floats(call.padded), call.padded);
    for (int64_t lane = 0; lane < task.count; ++lane) {
      const float maximum = std::max(t.maximum[lane], from.maximum[lane]);
      const float keep = std::exp((t.maximum[lane] - maximum) * call.args.shape.scale);
      const float take = std::exp((from.maximum[lane] - maximum) * call.args.shape.scale);
      t.maximum[lane] = maximum;
      t.sum[lane] = t.sum[lane] * keep + from.sum[lane] * take;
      const int64_t column = lane / kGroup * call.padded * kGroup + lane % kGroup;
      for (int64_t e = 0; e < call.value_dim; ++e) {
        float& o = t.o[column + e * kGroup];
        o = o * keep + from.o[column + e * kGroup] * take;
      }
    }
  }
  finish<E>(call.args, s, task, t);
}

int64_t num_tiles(const SpanLanes& s) { return s.is_empty() ? 0 : ceil_div(s.num_lanes(), kTaskLanes); }
int64_t num_splits(const SpanLanes& s) {
  return s.num_lanes() <= kSplitLanes ? std::max<int64_t>(ceil_div(s.num_k, kSplitKeys), 1) : 1;
}

// What all tasks share, at the front of worker 0's scratch: where each span's tasks and slots begin, and the
// slots.
struct Shared {
  int64_t *tasks, *slots;
  float* partials;

  static Shared make(Arena& a, const AttentionArgs& args, int64_t padded) {
    const int64_t n = args.shape.num_spans, num_kv = args.shape.num_kv_heads;
    int64_t num_slots = 0;
    for (int64_t i = 0; i < n; ++i) {
      const SpanLanes s(args.shape, i);
      if (num_splits(s) > 1) num_slots += num_splits(s) * num_tiles(s) * num_kv;
    }
    return {a.take<int64_t>(n + 1), a.take<int64_t>(n + 1), a.take<float>(num_slots * Partial::floats(padded))};
  }
  void fill(const AttentionArgs& args) const {
    tasks[0] = slots[0] = 0;
    for (int64_t i = 0; i < args.shape.num_spans; ++i) {
      const SpanLanes s(args.shape, i);
      const int64_t count = num_tiles(s) * num_splits(s) * args.shape.num_kv_heads;
      tasks[i + 1] = tasks[i] + count, slots[i + 1] = slots[i] + (num_splits(s) > 1 ? count : 0);
    }
  }
};

void clear_blind_rows(Stream& stream, const AttentionArgs& args) {
  const int64_t num_tokens = args.q.dim(0);
  for_each_blind_rows(args.shape, num_tokens, [&](int64_t first, int64_t count) {
    zero_rows(stream, args.y, first, count);
    for (int64_t head = 0; args.lse && head < args.shape.num_heads; ++head) {
      std::fill_n(args.lse.data<float>() + head * num_tokens + first, count, -HUGE_VALF);
    }
  });
}

template <class Op, class E>
void run(Stream& stream, const AttentionArgs& args) {
  clear_blind_rows(stream, args);
  const Call<Op> call(args);
  const int64_t n = args.shape.num_spans, num_kv = args.shape.num_kv_heads;
  Arena own, counted;
  State::make<Op>(own, call.dim, call.value_dim);
  Shared::make(counted, args, call.padded);
  std::byte* base = stream.scratch(0, counted.used() + own.used());
  Arena front(base);
  const auto shared = Shared::make(front, args, call.padded);
  shared.fill(args);
  const auto [tasks, slots, partials] = shared;
  const auto scratch = [&](int worker) {
    return worker == 0 ? base + counted.used() : stream.scratch(worker, own.used());
  };
  const auto task_at = [&](int64_t i, const SpanLanes& s, int64_t span) {
    const int64_t splits = num_splits(s), index = i - tasks[span];
    const int64_t split = index / num_kv % splits;  // heads turn fastest: they share the pages of their keys
    const int64_t tile = num_tiles(s) - 1 - index / num_kv / splits;  // the longest first
    Task task{.first = tile * kTaskLanes, .kv_head = int(index % num_kv)};
    task.count = std::min<int64_t>(kTaskLanes, s.num_lanes() - task.first);
    task.key_begin = split * kSplitKeys;
    task.key_end = splits > 1 ? std::min<int64_t>(s.num_k, task.key_begin + kSplitKeys) : s.num_k;
    const int64_t slot = slots[span] + task.kv_head * splits + split;
    if (splits > 1) task.partial = partials + slot * Partial::floats(call.padded);
    return task;
  };
  stream.team().parallel_for(tasks[n], 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t span = find_span(tasks, n, i);
      const SpanLanes s(args.shape, span);
      // Likely this worker's next.
      const int64_t later = std::min(i + stream.team().size(), tasks[n] - 1);
      const int64_t next_span = find_span(tasks, n, later);
      const SpanLanes next_s(args.shape, next_span);
      const Task task = task_at(i, s, span), next = task_at(later, next_s, next_span);
      run_task<Op, E>(call, s, task, next_s, later > i ? &next : nullptr, scratch(worker));
    }
  });
  if (slots[n] == 0) return;
  stream.team().parallel_for(n * num_kv, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const SpanLanes s(args.shape, i / num_kv);
      const int64_t splits = num_splits(s);
      if (splits == 1 || s.is_empty()) continue;
      const Task task{.count = s.num_lanes(), .kv_head = int(i % num_kv)};
      const float* parts = partials + (slots[i / num_kv] + task.kv_head * splits) * Partial::floats(call.padded);
      join<Op, E>(call, s, task, parts, splits, scratch(worker));
    }
  });
}

void forward(Stream& stream, const AttentionArgs& args, [[maybe_unused]] bool use_bf16_dot) {
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

HWY_EXPORT(forward);

void attention(Stream& stream, const AttentionArgs& args, AttentionOptions options) {
  shapes::check_attention(args);
  check_cpu_can(args.shape, args.q);
  if (args.shape.num_heads == 0) return;
  HWY_DYNAMIC_DISPATCH(forward)(stream, args, options.use_bf16_dot);
}

void attention(Stream& stream, const AttentionArgs& args) { attention(stream, args, AttentionOptions{}); }

}  // namespace weft::cpu
#endif
