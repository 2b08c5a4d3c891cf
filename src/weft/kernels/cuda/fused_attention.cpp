// Attention by fused plans: their arguments, and how one comes to be trusted.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "weft/kernels/cuda/attention_plan.h"
#include "weft/kernels/cuda/attention_ways.h"
#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/cuda/per_device.h"

namespace weft::cuda {
namespace {

// What is known about the plans of a device, for all threads.
class FusedPlans {
 public:
  enum class Trust { unknown, given, refused };
  struct Known {
    std::shared_ptr<const FusedPlan> plan;
    Trust trust = Trust::unknown;
  };

  Known of(const FusedKey& key) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = known_.try_emplace(key);
    if (is_new) {
      at->second.plan = make_fused_plan(key);
      if (!at->second.plan) at->second.trust = Trust::refused;
    }
    return at->second;
  }
  void set(const FusedKey& key, Trust trust) {
    const std::lock_guard lock(mutex_);
    known_[key].trust = trust;
  }

 private:
  std::mutex mutex_;
  std::map<FusedKey, Known> known_;
};

// Where ragged sequences begin and how long they are, on the device.
class RaggedRows {
 public:
  RaggedRows(Stream& stream, const FusedKey& key, const AttentionShape& shape) {
    if (!key.is_ragged) return;
    std::vector<int32_t> q, k, v, y, lse, queries, keys;
    const auto begin = [&](int32_t q_row, int32_t k_row) {
      q.push_back(q_row * key.row_heads * key.dim), k.push_back(k_row * key.row_kv_heads * key.dim);
      y.push_back(q_row * key.row_heads * key.value_dim), v.push_back(k_row * key.row_kv_heads * key.value_dim);
      lse.push_back(q_row);
    };
    for (int i = 0; i < shape.num_spans; ++i) {
      const AttentionSpan& a = shape.spans[i];
      begin(a.q_begin, a.k_begin);
      queries.push_back(a.q_end - a.q_begin), keys.push_back(a.k_end - a.k_begin);
    }
    const AttentionSpan& last = shape.spans[shape.num_spans - 1];
    while (q.size() <= size_t(key.sequences)) begin(last.q_end, last.k_end);
    queries.resize(size_t(key.sequences)), keys.resize(size_t(key.sequences));
    PackedArrays packed;
    const size_t at[] = {packed.add(q),   packed.add(k),       packed.add(v),   packed.add(y),
                         packed.add(lse), packed.add(queries), packed.add(keys)};
    const std::byte* const device = upload(stream, packed.data(), int64_t(packed.size()));
    for (size_t i = 0; i < arrays_.size(); ++i) arrays_[i] = reinterpret_cast<const int32_t*>(device + at[i]);
  }
  void give(FusedCall& call) const {
    call.q_begin = arrays_[0], call.k_begin = arrays_[1], call.v_begin = arrays_[2], call.y_begin = arrays_[3];
    call.lse_begin = arrays_[4], call.num_queries = arrays_[5], call.num_keys = arrays_[6];
  }

 private:
  std::array<const int32_t*, 7> arrays_{};
};

struct Operands {
  Tensor q{}, k{}, v{}, y{}, lse{}, dy{}, dq{}, dk{}, dv{};
};

// All sequences and heads, as many at a time as the plan takes.
void run(Stream& stream, const FusedKey& key, const FusedPlan& plan, const AttentionShape& shape, const Operands& x) {
  const RaggedRows ragged(stream, key, shape);
  const size_t own = key.is_backward ? size_t(key.sequences) * size_t(key.heads) * size_t(key.queries) * 4 : 0;
  const int64_t workspace_bytes = round_up(int64_t(plan.workspace_bytes()), 256);
  const Tensor workspace = stream.allocator().empty(DType::u8, {workspace_bytes + int64_t(own)});
  auto* const scratch = static_cast<std::byte*>(workspace.raw());
  auto* const queue = static_cast<cudaStream_t>(stream.queue().handle());
  const int64_t element = int64_t(size_of(key.type)), group = key.heads / key.kv_heads;
  const int64_t all_sequences = key.is_ragged ? key.sequences : shape.num_spans;
  const auto from = [&](const Tensor& t, int64_t row, int64_t row_heads, int64_t head) -> std::byte* {
    return t ? static_cast<std::byte*>(t.raw()) + (row * row_heads + head) * t.dim(2) * element : nullptr;
  };
  for (int64_t s = 0; s < all_sequences; s += key.sequences) {
    for (int64_t kv = 0; kv < key.row_kv_heads; kv += key.kv_heads) {
      const int64_t query = s * key.queries, key_row = s * key.keys, head = kv * group;
      const auto of_q = [&](const Tensor& t) { return from(t, key.is_ragged ? 0 : query, key.row_heads, head); };
      const auto of_k = [&](const Tensor& t) { return from(t, key.is_ragged ? 0 : key_row, key.row_kv_heads, kv); };
      FusedCall call;
      call.q = of_q(x.q), call.k = of_k(x.k), call.v = of_k(x.v), call.y = of_q(x.y), call.dy = of_q(x.dy);
      call.dq = of_q(x.dq), call.dk = of_k(x.dk), call.dv = of_k(x.dv);
      call.lse = device_data<float>(x.lse) + head * key.lse_stride + (key.is_ragged ? 0 : query);
      call.row_sums = own ? reinterpret_cast<float*>(scratch + workspace_bytes) : nullptr;
      call.workspace = scratch, call.scale = shape.scale;
      ragged.give(call);
      plan.queue(queue, call);
    }
  }
}

std::vector<float> on_host(Stream& stream, const Tensor& t) {
  std::vector<std::byte> bytes(t.bytes());
  stream.queue().copy_to_host(bytes.data(), t.raw(), bytes.size());
  std::vector<float> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = [&]<class T>() {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      return float(value);
    };
    values[i] = t.dtype() == DType::f32    ? at.operator()<float>()
                : t.dtype() == DType::bf16 ? at.operator()<BFloat16>()
                                           : at.operator()<Float16>();
  }
  return values;
}

struct Distance {
  double most = 0, of_most = 0;  // the largest difference, the largest value that was expected
  double squares = 0, of_squares = 0;
  bool is_number = true;
};

Distance distance_of(const std::vector<float>& actual, const std::vector<float>& expected) {
  Distance d;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double want = expected[i], difference = std::abs(double(actual[i]) - want);
    if (!std::isfinite(actual[i]) || !std::isfinite(want)) d.is_number = false;
    d.most = std::max(d.most, difference), d.of_most = std::max(d.of_most, std::abs(want));
    d.squares += difference * difference, d.of_squares += want * want;
  }
  return d;
}

FusedPlans::Trust trust_in(Stream& stream, const std::vector<Tensor>& first, const std::vector<Tensor>& second,
                           const std::vector<Tensor>& expected, DType type) {
  // Both round to the type; between, sums are made in other orders.
  const double noise = type == DType::bf16 ? 0x1p-6 : 0x1p-8;
  bool is_telling = false;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<float> actual = on_host(stream, first[i]), want = on_host(stream, expected[i]);
    const Distance d = distance_of(actual, want);
    if (!d.is_number) {  // a run that has failed already says nothing of a plan
      if (std::ranges::all_of(want, [](float x) { return std::isfinite(x); })) return FusedPlans::Trust::refused;
      return FusedPlans::Trust::unknown;
    }
    const bool is_near = d.most <= 4 * noise * d.of_most && d.squares <= noise * noise * d.of_squares;
    if (!is_near || on_host(stream, second[i]) != actual) return FusedPlans::Trust::refused;
    is_telling |= d.of_most > 0;
  }
  return is_telling ? FusedPlans::Trust::given : FusedPlans::Trust::unknown;
}

std::string words_for(const FusedKey& key) {
  return fmt::format("{} of {}{} sequences of {} queries and {} keys, {} heads of {} and {} on {}{}{}",
                     key.is_backward ? "gradients" : "attention", key.is_ragged ? "up to " : "", key.sequences,
                     key.queries, key.keys, key.heads, key.dim, key.value_dim, key.kv_heads,
                     key.is_causal ? ", causal" : "", key.window ? fmt::format(" within {}", key.window) : "");
}

// outputs: which of the operands are written. by_tiles: the same by our own kernels into other memory.
template <class ByTiles>
FusedPlans::Trust try_out(Stream& stream, const FusedKey& key, const FusedPlan& plan, const AttentionShape& shape,
                          const Operands& operands, const std::vector<Tensor Operands::*>& outputs,
                          const ByTiles& by_tiles) {
  const auto elsewhere = [&] {
    Operands other = operands;
    for (const auto output : outputs) {
      const Tensor& t = operands.*output;
      other.*output = stream.allocator().empty(t.dtype(), t.shape());
    }
    return other;
  };
  const auto written = [&](const Operands& x) {
    std::vector<Tensor> all;
    for (const auto output : outputs) all.push_back(x.*output);
    return all;
  };
  try {
    const Operands again = elsewhere(), expected = elsewhere();
    run(stream, key, plan, shape, operands);
    run(stream, key, plan, shape, again);
    by_tiles(expected);
    return trust_in(stream, written(operands), written(again), written(expected), key.type);
  } catch (const Error&) {  // it does not run, or the memory to compare is not there
    return FusedPlans::Trust::refused;
  }
}

template <class ByTiles>
bool run_trusted(Stream& stream, const FusedKey& key, const AttentionShape& shape, const Operands& operands,
                 const std::vector<Tensor Operands::*>& outputs, const ByTiles& by_tiles) {
  using Trust = FusedPlans::Trust;
  FusedPlans& plans = of_this_device<FusedPlans>();
  const FusedPlans::Known known = plans.of(key);
  if (known.trust == Trust::refused) return false;
  if (known.trust == Trust::given) return run(stream, key, *known.plan, shape, operands), true;
  const Trust trust = try_out(stream, key, *known.plan, shape, operands, outputs, by_tiles);
  plans.set(key, trust);
  if (trust == Trust::refused)
    fmt::print(stderr,
               "weft: cuDNN's plan for {} does not run, or differs from weft's own kernel or from itself: weft's own "
               "is used\n",
               words_for(key));
  return trust == Trust::given;
}

}  // namespace

bool fused_attention(Stream& stream, const AttentionArgs& args) {
  if (!has_fused_plans() || args.bias || args.dropout.p > 0) return false;
  const auto key = fused_key(args.shape, args.q.dtype(), args.q.dim(0), args.k.dim(0));
  if (!key) return false;
  Operands operands{.q = args.q, .k = args.k, .v = args.v, .y = args.y, .lse = args.lse};
  if (!operands.lse) operands.lse = stream.allocator().empty(DType::f32, {args.q.dim(1), args.q.dim(0)});
  return run_trusted(stream, *key, args.shape, operands, {&Operands::y, &Operands::lse}, [&](const Operands& into) {
    AttentionArgs own = args;
    own.y = into.y, own.lse = into.lse;
    tiled_attention(stream, own);
  });
}

bool fused_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  if (!has_fused_plans() || args.bias || args.dropout.p > 0) return false;
  const auto forward = fused_key(args.shape, args.q.dtype(), args.q.dim(0), args.k.dim(0));
  const auto key = forward ? fused_backward_key(*forward, kFusedWorkspaceBytes) : std::nullopt;
  if (!key) return false;
  const Operands operands{.q = args.q,
                          .k = args.k,
                          .v = args.v,
                          .y = args.y,
                          .lse = args.lse,
                          .dy = args.dy,
                          .dq = args.dq,
                          .dk = args.dk,
                          .dv = args.dv};
  return run_trusted(stream, *key, args.shape, operands, {&Operands::dq, &Operands::dk, &Operands::dv},
                     [&](const Operands& into) {
                       AttentionBackwardArgs own = args;
                       own.dq = into.dq, own.dk = into.dk, own.dv = into.dv;
                       tiled_attention_backward(stream, own);
                     });
}

}  // namespace weft::cuda
