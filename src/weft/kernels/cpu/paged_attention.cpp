// Attention over keys and values that lie in the blocks of a pool, for serving.
// Sources: Kwon et al., "PagedAttention", 2023; Dao et al., "Flash-Decoding", 2023.
//
// What a row becomes depends on nothing but itself and its keys, to the last bit. A sequence's keys are cut into
// tiles and splits that are counted from its first key. A lane, which is one head of one row, has a softmax of its
// own: it takes the tiles of a split in their order and then joins the splits in theirs, whichever tasks these belong
// to. Lanes only share the loads of a tile. A tile or key that a lane does not see leaves its state alone.
#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/attention_plan.h"
#include "weft/kernels/selected_keys.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/paged_attention.cpp"
#include <hwy/foreach_target.h>

#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/paged_attention_amx-inl.h"
#include "weft/kernels/cpu/paged_attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {
namespace {

constexpr int kTasksPerWorker = 4;

// Lanes [first, first + count) of a sequence, of one key/value head, over splits [split, end_split) of its keys.
struct Task {
  const PagedSequence& sequence;
  int64_t index = 0;  // of the sequence
  int64_t first = 0, count = 0, split = 0, end_split = 0;
  int kv_head = 0;
  bool is_part = false;  // other tasks have the other splits
};

// ---- splits ----

int64_t first_key(const Call& call, const Task& task, int64_t split) {
  return std::max<int64_t>(split * kSplitKeys, call.start(task.sequence, task.first) / kTileKeys * kTileKeys);
}

// Blocks of lanes [0, count) against a tile; lanes behind them, whose block is the last one's, stay as they are.
template <class Op>
void blocks_of_lanes(const Call& call, const State& t, int64_t count, int64_t key, int64_t num_keys,
                     RowsAhead& ahead) {
  float maxima[kBlockLanes], sums[kBlockLanes];
  std::copy_n(t.split.maximum + count, kBlockLanes, maxima);
  std::copy_n(t.split.sum + count, kBlockLanes, sums);
  for (int64_t lane = 0; lane < count; lane += kBlockLanes)
    block_tile<Op>(call, t, lane, count - lane, key, num_keys, ahead);
  std::copy_n(maxima, kBlockLanes, t.split.maximum + count);
  std::copy_n(sums, kBlockLanes, t.split.sum + count);
}

template <class Op>
void tile_of_lanes(const Call& call, const Task& task, const State& t, int64_t key, int64_t num_keys,
                   RowsAhead& ahead) {
  const int64_t first = first_by_amx<Op>(call, t, task.count, key, num_keys);
  blocks_of_lanes<Op>(call, t, first, key, num_keys, ahead);
  if (first < task.count) lanes_by_amx(call, t, first, task.count, ahead);
}

// t.split = the task's lanes over the keys of one split. `after`: the tile that is wanted next.
template <class Op, class E>
void run_split(const Call& call, const Task& task, int64_t split, const TilePlace& after, State t) {
  t.split.clear(task.count, call.padded);
  const int64_t begin = first_key(call, task, split);
  const int64_t end = std::min<int64_t>((split + 1) * kSplitKeys, t.limit[task.count - 1]);
  for (int64_t key = begin; key < end; key += kTileKeys) {
    const int64_t num_keys = std::min<int64_t>(kTileKeys, end - key);
    find_rows(call, task.sequence, key, num_keys, t.rows);
    pack_tile<Op, E>(call, t, task.kv_head, num_keys);
    const TilePlace next = key + num_keys < end ? TilePlace{&task.sequence, key + num_keys, task.kv_head} : after;
    RowsAhead ahead = rows_ahead(call, next, t);
    tile_of_lanes<Op>(call, task, t, key, num_keys, ahead);
    ahead.rest();
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

// What a sink adds to the sum of a lane's probabilities.
template <class E>
float sink_of(const Call& call, const Task& task, const State& t, int64_t lane) {
  if (!call.args.sinks) return 0;
  const int64_t head = task.kv_head * call.group + (task.first + lane) % call.group;
  return std::exp2(float(call.args.sinks.data<E>()[head]) * kLog2E - t.all.maximum[lane] * call.scale2);
}

// y = t.all.
template <class E>
void finish(const Call& call, const Task& task, const State& t) {
  const int dim = call.shape.values_dim();
  const RowView<E> y = lanes_of<E>(call, call.args.y, task, dim);
  for (int64_t lane = 0; lane < task.count; ++lane) {
    const V factor = hn::Set(df, 1 / (t.all.sum[lane] + sink_of<E>(call, task, t, lane)));
    const float* o = t.all.o + lane * call.padded;
    E* row = y[task.first + lane];
    for_each_vector<FloatWords>(dim, [&](int64_t e, auto tail) HWY_ATTR {
      store_floats<tail.value>(row, e, dim, hn::Mul(hn::LoadU(df, o + e), factor));
    });
  }
}

template <class Op, class E>
void set_lanes(const Call& call, const Task& task, const State& t) {
  const RowView<const E> rows = lanes_of<const E>(call, call.args.q, task, call.shape.head_dim);
  pack_lanes<Op>(t.q, rows, task.first, task.count);
  if constexpr (kHasAmx && Op::kPerWord == 2) {
    if (call.uses_amx) pack_columns(t.q_cols, rows, task.first, task.count);
  }
  for (int64_t i = 0; i < round_up(task.count, kBlockLanes); ++i) {  // past the last lane it stands again
    const int64_t lane = task.first + std::min(i, task.count - 1);
    t.start[i] = int32_t(call.start(task.sequence, lane));
    t.limit[i] = int32_t(call.limit(task.sequence, lane));
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

TilePlace place_of(const Call& call, const Task& task) {
  return {&task.sequence, first_key(call, task, task.split), task.kv_head};
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
void run(Stream& stream, const PagedAttentionArgs& args, bool may_use_amx) {
  const Call call(args, may_use_amx);
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
  const int workers = stream.team().size();
  const int64_t grain = std::clamp<int64_t>(plan.tasks[n] / (kTasksPerWorker * workers), 1, num_kv);
  stream.team().parallel_for(plan.tasks[n], grain, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      const State t = state(worker);
      const int64_t later = i + 1 < end ? i + 1 : i + 1 + (workers - 1) * grain;  // likely its next
      const TilePlace after = later < plan.tasks[n] ? place_of(call, task_at(call, plan, later)) : TilePlace();
      const Task task = task_at(call, plan, i);
      if (i == begin) rows_ahead(call, place_of(call, task), t).rest();
      run_task<Op>(call, plan, task, after, t);
    }
    if (call.uses_amx) amx::release();
  });
  if (plan.slots[n] == 0) return;
  stream.team().parallel_for(n * num_kv, 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      if (plan.is_cut(i / num_kv)) join_slots(call, plan, i / num_kv, int(i % num_kv), state(worker));
    }
  });
}

void paged_forward(Stream& stream, const PagedAttentionArgs& args, [[maybe_unused]] const AttentionOptions& options) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const bool is_bf16 =
      args.codes == RowCodes::none && args.q.dtype() == DType::bf16 && args.keys.dtype() == DType::bf16;
  if (options.use_bf16_dot && is_bf16 && has_bf16_pairs())
    return run<Bf16Words>(stream, args, options.use_amx && amx::can_use());
#endif
  run<FloatWords>(stream, args, false);
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
  if (args.selected) return paged_attention(stream, AttentionByRow(stream.allocator(), args).args, options);
  HWY_DYNAMIC_DISPATCH(paged_forward)(stream, args, options);
}

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  // Of one row to a sequence, what takes time is to widen keys that are read once, which pairs do without.
  paged_attention(stream, args, {.use_bf16_dot = true});
}

}  // namespace weft::cpu
#endif
