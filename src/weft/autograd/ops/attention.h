// Attention: softmax(q kᵀ) v over packed sequences, for training, prefill and decode alike.
#pragma once
#include <span>
#include <vector>

#include "weft/autograd/ops/attention_sinks.h"
#include "weft/autograd/ops/paged_cache.h"
#include "weft/autograd/tape.h"

namespace weft {

// One sequence's past, layer by layer: keys and values, or the states of a layer that has such in their place. A
// layer's memory is taken when it first appends: a rank has some layers of a model, and some heads of each.
class KvCache {
 public:
  KvCache(Context& context, int num_layers, int64_t capacity)
      : context_(context), layers_(size_t(num_layers)), states_(size_t(num_layers)), capacity_(capacity) {}

  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  // Appends rows of one layer behind the first length() and returns all of them; without v, keys alone.
  std::array<Tensor, 2> append(int layer, const Tensor& k, const Tensor& v);
  // All that a layer's keys and values have room for, [capacity, K, D], once it has appended some.
  const std::array<Tensor, 2>& layer(int layer) const { return layers_[size_t(layer)]; }
  void advance(int64_t num_tokens);  // after every layer has appended
  // A layer's states, each of whose first dim is 1; empty until the layer makes them. And the run of the tokens that
  // come next, valid until it is asked for again.
  Tensor& state(int layer, int which) { return states_[size_t(layer)][size_t(which)]; }
  TokenRuns run(int64_t num_tokens) {
    run_ = {.begin = 0, .end = int32_t(num_tokens), .from = length_ > 0 ? 0 : -1, .to = 0};
    return {&run_, 1};
  }
  void clear() { length_ = 0; }
  void drop(int64_t num_tokens) { length_ -= num_tokens; }  // the last ones, where layers have no states

 private:
  Context& context_;
  std::vector<std::array<Tensor, 2>> layers_;  // keys and values, [capacity, K, D] each
  std::vector<std::array<Tensor, kMostStates>> states_;
  TokenRun run_;
  int64_t length_ = 0, capacity_ = 0;
};

// One causal span for each sequence [starts[i], starts[i + 1]) of packed tokens; first_query is the global index of
// token 0. The other form reuses the storage of `spans`.
std::vector<AttentionSpan> causal_spans(std::span<const int32_t> starts, int64_t first_query = 0);
void fill_causal_spans(std::vector<AttentionSpan>& spans, std::span<const int32_t> starts, int64_t first_query);
// The same sequences, each from its beginning, as layers with a state see them.
void fill_token_runs(std::vector<TokenRun>& runs, std::span<const int32_t> starts);

// What a layer makes of the product of a query and a key, and which keys it looks at; see AttentionShape.
struct AttentionRule {
  float scale = 0, softcap = 0;
  int window = 0;
  int chunk = 0;  // rows see no key of another chunk of so many tokens of their sequence; 0: they do
  int first_head = 0, total_heads = 0;  // which heads of the layer these are, for dropout; 0: all
  int values_in_keys = 0;  // of a past: values are the first so many elements of keys; 0: they are kept beside them

  // Valid until the context's next call of attention.
  AttentionShape shape(Context& context, const Tensor& q, const Tensor& k, const Tensor& v,
                       std::span<const AttentionSpan> spans) const {
    if (chunk > 0) spans = context.chunks.cut(spans, chunk);
    return {.num_heads = int(q.dim(1)),
            .num_kv_heads = int(k.dim(1)),
            .head_dim = int(q.dim(2)),
            .spans = spans.data(),
            .num_spans = int(spans.size()),
            .scale = scale,
            .softcap = softcap,
            .window = window,
            .value_dim = int(v.dim(2)),
            .first_head = first_head,
            .total_heads = total_heads};
  }
};

struct PagedPlan;

// All that differs between training, prefill, decode and serving.
struct AttentionPlan {
  const int32_t* positions = nullptr;    // [T], host memory that outlives the tape
  const AttentionSpan* spans = nullptr;  // [num_spans], the same; not read with a cache
  int num_spans = 0;
  KvCache* cache = nullptr;          // null while training; with a cache there is one sequence, which continues it
  const PagedPlan* paged = nullptr;  // many sequences whose past lies in a PagedCache; instead of spans and cache
  Tensor bias = {};  // by distance, of the heads that are computed, see AttentionArgs; with spans, and forward only
};

// q[T, N, D] -> y[T, N, value D] of sequences whose keys and values lie in blocks. selected: as of paged_attention.
void attend_to_blocks(Context& context, const AttentionRule& rule, const AttentionSinks& sinks,
                      std::span<const PagedSequence> sequences, RowCodes codes, const Tensor& y, const Tensor& q,
                      const Tensor& keys, const Tensor& values, const Tensor& selected = {});

// Of sparse attention: which keys rows see.
struct KeySelection {
  int64_t most = 0;  // a row sees so many, those that its q and weights select; 0: all keys
  // Where a past is kept, see SelectKeysArgs; what is selected by is kept in the place of values, which are in the
  // keys.
  Tensor q, weights;
  Tensor selected;          // instead of q and weights: what another layer selected
  Tensor* found = nullptr;  // where what is selected is left, if anything is; optional
  Tensor key_bits;          // elsewhere, see AttentionArgs; empty: all keys
};

struct AttentionOp {
  static constexpr std::string_view kName = "attention";
  const AttentionPlan& plan;  // outlives the tape
  int layer;
  AttentionRule rule;
  DropoutKey dropout;
  AttentionSinks sinks = {};
  KeySelection selection = {};
  Tensor q = {}, k = {}, v = {}, y = {}, lse = {};

  // q[T, N, D], k[T, K, D], v[T, K, value D], or none where they lie in keys -> y[T, N, value D]
  Tensor forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in);
  std::array<Tensor, 3> backward(Context& context, const Tensor& dy);

 private:
  void attend_to_kept_keys(Context& context);
  void attend_to_pool(Context& context, std::span<const PagedSequence> sequences, RowCodes codes, const Tensor& keys,
                      const Tensor& values);
  std::span<const AttentionSpan> spans() const { return {plan.spans, size_t(plan.num_spans)}; }
};

}  // namespace weft
