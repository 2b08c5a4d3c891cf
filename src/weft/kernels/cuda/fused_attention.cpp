// Attention by fused plans: their arguments, and how one comes to be trusted.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "weft/kernels/cuda/alignment.h"
#include "weft/kernels/cuda/attention_plan.h"
#include "weft/kernels/cuda/attention_ways.h"
#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/cuda/noise.h"
#include "weft/kernels/cuda/per_device.h"

namespace weft::cuda {
namespace {

std::string words_for(const FusedKey& key) {
  return fmt::format("{} of {}{} sequences of {} queries and {} keys, {} heads of {} and {} on {}{}{}",
                     key.is_backward ? "gradients" : "attention", key.is_ragged ? "up to " : "", key.sequences,
                     key.queries, key.keys, key.heads, key.dim, key.value_dim, key.kv_heads,
                     key.is_causal ? ", causal" : "", key.window ? fmt::format(" within {}", key.window) : "");
}

// What is known about the plans of a device, for all threads.
class FusedPlans {
 public:
  enum class Trust { unknown, given, refused };  // as long as nobody has tried it, it is unknown
  struct Known {
    std::shared_ptr<const FusedPlan> plan;
    Trust trust = Trust::unknown;
  };

  Known of(const FusedKey& key) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = known_.try_emplace(key);
    if (!is_new) return at->second;
    try {
      at->second.plan = make_fused_plan(key);
    } catch (const Error& e) {  // as when a part of the library is missing
      fmt::print(stderr, "weft: no plan for {}, so weft's own kernel is used: {}\n", words_for(key), e.what());
    }
    if (!at->second.plan) at->second.trust = Trust::refused;
    return at->second;
  }
  // Whether it was not known before.
  bool set(const FusedKey& key, Trust trust) {
    const std::lock_guard lock(mutex_);
    return std::exchange(known_[key].trust, trust) == Trust::unknown;
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
using Outputs = std::vector<Tensor Operands::*>;

// All sequences and heads, as many at a time as the plan takes.
void run(Stream& stream, const FusedKey& key, const FusedPlan& plan, const AttentionShape& shape, const Operands& x) {
  const RaggedRows ragged(stream, key, shape);
  const size_t own = key.is_backward ? size_t(key.sequences) * size_t(key.heads) * size_t(key.queries) * 4 : 0;
  const int64_t workspace_bytes = round_up(std::max<int64_t>(int64_t(plan.workspace_bytes()), 1), 256);
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

// ---- how a plan comes to be trusted ----

// Noise in the place of an operand.
Tensor noise_like(Stream& stream, const Tensor& t, std::string_view name) {
  return noise_of(stream, stream.allocator(), t.dtype(), t.shape(), name);
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

// Why not, or nothing. Both round to the type; between, sums are made in other orders.
std::string far_apart(const std::vector<float>& actual, const std::vector<float>& expected, DType type) {
  const double noise = type == DType::bf16 ? 0x1p-6 : 0x1p-8;
  double most = 0, of_most = 0, squares = 0, of_squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double want = expected[i], difference = std::abs(double(actual[i]) - want);
    if (!std::isfinite(difference))
      return fmt::format("makes {} of what weft's own kernel makes {}", actual[i], want);
    most = std::max(most, difference), of_most = std::max(of_most, std::abs(want));
    squares += difference * difference, of_squares += want * want;
  }
  if (most <= 4 * noise * of_most && squares <= noise * noise * of_squares) return {};
  return fmt::format("differs from weft's own kernel by up to {:.2g} of {:.2g}, {:.2g} of all", most, of_most,
                     std::sqrt(squares / of_squares));
}

// Nothing where a plan gives the same in two runs, and nearly what the tiles make of it; else what is wrong. `trial`
// has inputs; outputs: what is written.
template <class ByTiles>
std::string fault_of(Stream& stream, const FusedKey& key, const FusedPlan& plan, const AttentionShape& shape,
                     const Operands& trial, const Outputs& outputs, const ByTiles& by_tiles) {
  const auto written_by = [&](const auto& work) {
    Operands x = trial;
    for (const auto output : outputs)
      x.*output = stream.allocator().empty((trial.*output).dtype(), (trial.*output).shape());
    work(x);
    std::vector<std::vector<float>> all;
    for (const auto output : outputs) all.push_back(on_host(stream, x.*output));
    return all;
  };
  const auto by_plan = [&](const Operands& x) { run(stream, key, plan, shape, x); };
  const auto first = written_by(by_plan);
  const auto again = written_by(by_plan);
  const auto expected = written_by(by_tiles);
  for (size_t i = 0; i < expected.size(); ++i)
    if (std::string fault = far_apart(first[i], expected[i], key.type); !fault.empty()) return fault;
  return first == again ? "" : "differs from itself";
}

// try_out: what is wrong with a plan, or nothing.
template <class TryOut>
bool run_trusted(Stream& stream, const FusedKey& key, const AttentionShape& shape, const Operands& operands,
                 const TryOut& try_out) {
  using Trust = FusedPlans::Trust;
  FusedPlans& plans = of_this_device<FusedPlans>();
  const FusedPlans::Known known = plans.of(key);
  Trust trust = known.trust;
  if (trust == Trust::unknown) {
    std::string fault;
    try {
      fault = try_out(*known.plan);
    } catch (const Error& e) {  // or the memory to compare is not there
      fault = fmt::format("does not run ({})", e.what());
    }
    trust = fault.empty() ? Trust::given : Trust::refused;
    if (plans.set(key, trust) && !fault.empty())
      fmt::print(stderr, "weft: cuDNN's plan for {} {}: weft's own kernel is used\n", words_for(key), fault);
  }
  if (trust == Trust::refused) return false;
  run(stream, key, *known.plan, shape, operands);
  return true;
}

void forward_by_tiles(Stream& stream, const AttentionShape& shape, const Operands& x) {
  tiled_attention(stream, {.y = x.y,
                           .lse = x.lse,
                           .q = x.q,
                           .k = x.k,
                           .v = x.v,
                           .shape = shape,
                           .dropout = {},
                           .bias = {},
                           .key_bits = {}});
}

}  // namespace

bool fused_attention(Stream& stream, const AttentionArgs& args) {
  if (!has_fused_plans() || args.bias || args.key_bits || args.dropout.p > 0) return false;
  if (!are_aligned(args.y, args.q, args.k, args.v)) return false;  // plans read 16 bytes at once
  const auto key = fused_key(args.shape, args.q.dtype(), args.q.dim(0), args.k.dim(0));
  if (!key) return false;
  Operands operands{.q = args.q, .k = args.k, .v = args.v, .y = args.y, .lse = args.lse};
  if (!operands.lse) operands.lse = stream.allocator().empty(DType::f32, {args.q.dim(1), args.q.dim(0)});
  return run_trusted(stream, *key, args.shape, operands, [&](const FusedPlan& plan) {
    Operands trial = operands;
    trial.q = noise_like(stream, args.q, "q"), trial.k = noise_like(stream, args.k, "k");
    trial.v = noise_like(stream, args.v, "v");
    return fault_of(stream, *key, plan, args.shape, trial, {&Operands::y, &Operands::lse},
                    [&](const Operands& x) { forward_by_tiles(stream, args.shape, x); });
  });
}

bool fused_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  if (!has_fused_plans() || args.bias || args.key_bits || args.dropout.p > 0) return false;
  if (!are_aligned(args.dq, args.dk, args.dv, args.dy, args.y, args.q, args.k, args.v)) return false;
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
  return run_trusted(stream, *key, args.shape, operands, [&](const FusedPlan& plan) {
    Operands trial = operands;
    trial.q = noise_like(stream, args.q, "q"), trial.k = noise_like(stream, args.k, "k");
    trial.v = noise_like(stream, args.v, "v"), trial.dy = noise_like(stream, args.dy, "dy");
    trial.y = stream.allocator().empty(args.y.dtype(), args.y.shape());
    trial.lse = stream.allocator().empty(DType::f32, args.lse.shape());
    forward_by_tiles(stream, args.shape, trial);
    return fault_of(stream, *key, plan, args.shape, trial, {&Operands::dq, &Operands::dk, &Operands::dv},
                    [&](const Operands& x) {
                      AttentionBackwardArgs own = args;
                      own.dq = x.dq, own.dk = x.dk, own.dv = x.dv, own.dy = x.dy, own.y = x.y, own.lse = x.lse;
                      own.q = x.q, own.k = x.k, own.v = x.v;
                      tiled_attention_backward(stream, own);
                    });
  });
}

}  // namespace weft::cuda
