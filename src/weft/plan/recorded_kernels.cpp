// recorded_kernels: one wrapper for every entry of the table, made by the compiler.
#include "weft/plan/recorded_kernels.h"

#include <map>

#include "weft/base/timing.h"
#include "weft/kernels/grouped_matmul.h"

namespace weft::plan {
namespace {

template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&t)[N]) { std::copy_n(t, N, text); }  // NOLINT: a literal is a name
  constexpr std::string_view view() const { return {text, N - 1}; }
};

// What a call is besides its cost. By default it is bound by memory.
template <class... Args>
void describe(Event&, const Args&...) {}

// What an epilogue reads and writes where it is a kernel of its own.
double fused_bytes(const MatmulArgs& args) {
  const double y = double(args.y.bytes());
  switch (args.epilogue.kind) {
    case Epilogue::Kind::none: return 0;
    case Epilogue::Kind::activate: return 2 * y;
    case Epilogue::Kind::gated:
    case Epilogue::Kind::activate_backward: return 3 * y;
    case Epilogue::Kind::gated_backward: return 5 * y;
  }
  return 0;
}

void describe(Event& e, const MatmulArgs& args) {
  e.kind = Event::Kind::matmul;
  e.dtype = args.a.dtype();
  e.m = int32_t(args.y.rows()), e.n = int32_t(args.y.cols());
  e.k = int32_t(args.a.dim(args.transpose_a ? 0 : 1));
  e.is_weight_gradient = args.transpose_a, e.is_float8 = args.float8;
  e.fused_bytes = fused_bytes(args);
}
void describe(Event& e, const AttentionArgs& args) {
  e.kind = Event::Kind::attention;
  e.dtype = args.q.dtype();
  e.m = int32_t(args.q.dim(0)), e.n = args.shape.num_heads, e.k = args.shape.head_dim;
}
void describe(Event& e, const AttentionBackwardArgs& args) {
  e.kind = Event::Kind::attention, e.is_backward = true;
  e.dtype = args.q.dtype();
  e.m = int32_t(args.q.dim(0)), e.n = args.shape.num_heads, e.k = args.shape.head_dim;
}

void describe(Event& e, const PagedAttentionArgs& args) {
  e.kind = Event::Kind::attention;
  e.dtype = args.q.dtype();
  e.m = int32_t(args.q.dim(0)), e.n = int32_t(args.q.dim(1)), e.k = int32_t(args.q.dim(2));
}

template <auto Member, Name kName>
struct Recorded;

template <class R, class... Args, R (*Kernels::*Member)(Stream&, Args...), Name kName>
struct Recorded<Member, kName> {
  static R call(Stream& stream, Args... args) {
    auto& recorded = static_cast<RecordedStream&>(stream);
    const Kernels* const timed = recorded.timed();
    if (!recorded.is_recording()) return ((timed ? *timed : meta_kernels()).*Member)(stream, args...);
    Event event{.phase = recorded.phase(), .name = kName.view()};
    describe(event, args...);
    const Cost before = std::exchange(stream.cost, Cost{});
    const auto begin = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    const auto run = [&] {  // the real kernel, where there is one; else the meta kernel, whose result counts
      if (timed) return (timed->*Member)(stream, args...);
      return (meta_kernels().*Member)(stream, args...);
    };
    const auto finish = [&] {
      if (timed) {
        event.seconds = seconds_since(begin);
        stream.cost = {};
        (meta_kernels().*Member)(stream, args...);  // counts, and touches no data
      }
      const double repeats = event.count = recorded.repeats();
      event.flops = repeats * stream.cost.flops, event.bytes = repeats * stream.cost.bytes;
      event.fused_bytes *= repeats;
      stream.cost = {before.flops + event.flops, before.bytes + event.bytes};
      recorded.add(event);
    };
    if constexpr (std::is_void_v<R>) {
      run();
      finish();
    } else {
      const R result = run();
      finish();
      return result;
    }
  }
};

using Matmul = Recorded<&Kernels::matmul, "matmul">;
using Fill = Recorded<&Kernels::fill, "fill">;

// Calls run(begin, count, group) for the first group of each size, which stands for all of that size: of hundreds of
// experts nearly all have as many rows. Groups without rows are left out.
template <class Run>
void each_size(RecordedStream& stream, std::span<const int64_t> starts, const Run& run) {
  std::map<int64_t, std::pair<int64_t, int32_t>> sizes;  // the first group of each, and how many there are
  for (size_t g = 0; g + 1 < starts.size(); ++g)
    if (starts[g] < starts[g + 1]) ++sizes.try_emplace(starts[g + 1] - starts[g], int64_t(g), 0).first->second.second;
  stream.set_merging(true);
  for (const auto& [count, groups] : sizes) {
    stream.set_repeats(groups.second);
    run(starts[size_t(groups.first)], count, groups.first);
  }
  stream.set_repeats(1);
  stream.set_merging(false);
}

// Products that are timed are made one by one, and so are those whose rows name their groups.
void grouped_matmuls(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  auto& recorded = static_cast<RecordedStream&>(stream);
  if (recorded.timed() || products[0].starts.empty()) return each_group<each<Matmul::call>>(stream, products);
  check_groups(products);
  each_size(recorded, products[0].starts, [&](int64_t begin, int64_t count, int64_t group) {
    for (const GroupedMatmulArgs& p : products) Matmul::call(stream, of_group(p, begin, count, group));
  });
}

void grouped_gradients(Stream& stream, const GroupedGradientArgs& all) {
  auto& recorded = static_cast<RecordedStream&>(stream);
  if (recorded.timed()) return each_gradient<Matmul::call, Fill::call>(stream, all);
  check_groups(all);
  each_size(recorded, all.starts, [&](int64_t begin, int64_t count, int64_t group) {
    Matmul::call(stream, gradient_of_group(all, begin, count, group));
  });
  if (all.accumulate) return;
  for (size_t g = 0; g + 1 < all.starts.size(); ++g)
    if (all.starts[g] == all.starts[g + 1]) Fill::call(stream, matrix_of(all.y, int64_t(g)), 0);
}

template <auto Member, Name kName>
void record(Kernels& table) {
  table.*Member = Recorded<Member, kName>::call;
}

}  // namespace

bool RecordedStream::add_to(Event& all, const Event& one) {
  const auto kind_of = [](const Event& e) {
    return std::tuple(e.kind, e.phase, e.dtype, e.m, e.n, e.k, e.is_weight_gradient, e.is_float8);
  };
  if (one.kind != Event::Kind::matmul || kind_of(all) != kind_of(one)) return false;
  all.count += one.count;
  all.flops += one.flops, all.bytes += one.bytes, all.fused_bytes += one.fused_bytes;
  return true;
}

void record(RecordedStream& stream, const CommEvent& e) {
  using Kind = Event::Kind;
  Kind kind = Kind::collective;
  if (e.is_wait)
    kind = Kind::wait;
  else if (e.op == CommOp::send)
    kind = Kind::send;
  else if (e.op == CommOp::recv)
    kind = Kind::recv;
  else if (e.is_started)
    kind = Kind::start;
  stream.add({.kind = kind,
              .axis = axis_of(e.group),
              .op = e.op,
              .dtype = e.dtype,
              .peer = e.peer,
              .tag = e.tag,
              .sequence = e.sequence,
              .bytes = double(e.bytes)});
}

Kernels recorded_kernels(const Kernels& base) {
  Kernels k = base;
  record<&Kernels::matmul, "matmul">(k);
  k.matmuls_of_one_a = each<Matmul::call>;  // an event of each
  k.grouped_matmuls = grouped_matmuls;
  k.grouped_gradients = grouped_gradients;
  record<&Kernels::pack_matmul_b, "pack_matmul_b">(k);
  record<&Kernels::attention, "attention">(k);
  record<&Kernels::attention_backward, "attention_backward">(k);
  record<&Kernels::attention_merge, "attention_merge">(k);
  record<&Kernels::paged_attention, "paged_attention">(k);
  record<&Kernels::select_keys, "select_keys">(k);
  record<&Kernels::mark_keys, "mark_keys">(k);
  record<&Kernels::place_rows, "place_rows">(k);
  record<&Kernels::rope, "rope">(k);
  record<&Kernels::join_heads, "join_heads">(k);
  record<&Kernels::take_heads, "take_heads">(k);
  record<&Kernels::put_heads, "put_heads">(k);
  record<&Kernels::split_heads, "split_heads">(k);
  record<&Kernels::causal_conv, "causal_conv">(k);
  record<&Kernels::causal_conv_backward, "causal_conv_backward">(k);
  record<&Kernels::recurrence, "recurrence">(k);
  record<&Kernels::recurrence_backward, "recurrence_backward">(k);
  record<&Kernels::norm, "norm">(k);
  record<&Kernels::norm_backward, "norm_backward">(k);
  record<&Kernels::read_streams, "read_streams">(k);
  record<&Kernels::read_streams_backward, "read_streams_backward">(k);
  record<&Kernels::write_streams, "write_streams">(k);
  record<&Kernels::write_streams_backward, "write_streams_backward">(k);
  record<&Kernels::activation, "activation">(k);
  record<&Kernels::activation_backward, "activation_backward">(k);
  record<&Kernels::gated_activation, "gated_activation">(k);
  record<&Kernels::gated_activation_backward, "gated_activation_backward">(k);
  record<&Kernels::xielu, "xielu">(k);
  record<&Kernels::xielu_backward, "xielu_backward">(k);
  record<&Kernels::softcap, "softcap">(k);
  record<&Kernels::softcap_backward, "softcap_backward">(k);
  record<&Kernels::dropout, "dropout">(k);
  record<&Kernels::embedding, "embedding">(k);
  record<&Kernels::embedding_backward, "embedding_backward">(k);
  record<&Kernels::cross_entropy, "cross_entropy">(k);
  record<&Kernels::cross_entropy_stats, "cross_entropy_stats">(k);
  record<&Kernels::cross_entropy_combine, "cross_entropy_combine">(k);
  record<&Kernels::cross_entropy_gradient, "cross_entropy_gradient">(k);
  record<&Kernels::find_tokens, "find_tokens">(k);
  record<&Kernels::place_tokens, "place_tokens">(k);
  record<&Kernels::route, "route">(k);
  record<&Kernels::route_backward, "route_backward">(k);
  record<&Kernels::order_by_group, "order_by_group">(k);
  record<&Kernels::combine_rows, "combine_rows">(k);
  record<&Kernels::combine_rows_backward, "combine_rows_backward">(k);
  record<&Kernels::add, "add">(k);
  record<&Kernels::accumulate, "accumulate">(k);
  record<&Kernels::scale, "scale">(k);
  record<&Kernels::convert, "convert">(k);
  record<&Kernels::fill, "fill">(k);
  record<&Kernels::sum_rows, "sum_rows">(k);
  record<&Kernels::scale_columns, "scale_columns">(k);
  record<&Kernels::dot_columns, "dot_columns">(k);
  record<&Kernels::dot_rows, "dot_rows">(k);
  record<&Kernels::sum_of_squares, "sum_of_squares">(k);
  record<&Kernels::split_masters, "split_masters">(k);
  record<&Kernels::join_masters, "join_masters">(k);
  record<&Kernels::adamw, "adamw">(k);
  record<&Kernels::adamw8, "adamw8">(k);
  record<&Kernels::sgd, "sgd">(k);
  record<&Kernels::lion, "lion">(k);
  record<&Kernels::encode_blocks, "encode_blocks">(k);
  record<&Kernels::decode_blocks, "decode_blocks">(k);
  record<&Kernels::add_factor_sums, "add_factor_sums">(k);
  record<&Kernels::factor_moment, "factor_moment">(k);
  record<&Kernels::factored_squares, "factored_squares">(k);
  record<&Kernels::adafactor, "adafactor">(k);
  return k;
}

}  // namespace weft::plan
