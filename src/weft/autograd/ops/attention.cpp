// Attention: calls of the attention kernels, and the cache of past keys and values.
#include "weft/autograd/ops/attention.h"

#include <algorithm>

#include "weft/autograd/ops/paged_cache.h"

namespace weft {

std::array<Tensor, 2> KvCache::append(int layer, const Tensor& k, const Tensor& v) {
  const int64_t rows = k.dim(0);
  check(length_ + rows <= capacity_, "the key/value cache holds {} tokens, {} are needed", capacity_, length_ + rows);
  const auto store = [&](Tensor& cache, const Tensor& x) {
    if (!cache) cache = context_.empty(x.dtype(), {capacity_, x.dim(1), x.dim(2)});
    context_.stream.copy(cache.slice_rows(length_, rows), x);
    return cache.slice_rows(0, length_ + rows);
  };
  auto& [keys, values] = layers_[size_t(layer)];
  return {store(keys, k), v ? store(values, v) : Tensor()};
}

void KvCache::advance(int64_t num_tokens) { length_ += num_tokens; }

std::vector<AttentionSpan> causal_spans(std::span<const int32_t> starts, int64_t first_query) {
  std::vector<AttentionSpan> spans;
  fill_causal_spans(spans, starts, first_query);
  return spans;
}

void fill_causal_spans(std::vector<AttentionSpan>& spans, std::span<const int32_t> starts, int64_t first_query) {
  spans.clear();
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int32_t begin = starts[i], end = starts[i + 1];
    spans.push_back({.q_begin = begin,
                     .q_end = end,
                     .k_begin = begin,
                     .k_end = end,
                     .causal = true,
                     .first_query = first_query + begin,
                     .first_key = 0});
  }
}

void fill_token_runs(std::vector<TokenRun>& runs, std::span<const int32_t> starts) {
  runs.clear();
  for (size_t i = 0; i + 1 < starts.size(); ++i) runs.push_back({.begin = starts[i], .end = starts[i + 1]});
}

void attend_to_blocks(Context& context, const AttentionRule& rule, const AttentionSinks& sinks,
                      std::span<const PagedSequence> sequences, RowCodes codes, const Tensor& y, const Tensor& q,
                      const Tensor& keys, const Tensor& values, const Tensor& selected) {
  if (rule.chunk > 0) sequences = context.chunks.cut(sequences, rule.chunk, keys.dim(1));
  context.kernels.paged_attention(context.stream, {.y = y,
                                                   .q = q,
                                                   .keys = keys,
                                                   .values = values,
                                                   .codes = codes,
                                                   .sequences = sequences.data(),
                                                   .num_sequences = int(sequences.size()),
                                                   .scale = rule.scale,
                                                   .softcap = rule.softcap,
                                                   .window = rule.window,
                                                   .sinks = sinks.of(0, q.dim(1)),
                                                   .selected = selected});
}

Tensor AttentionOp::forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in) {
  q = q_in, k = k_in, v = v_in;
  y = context.empty(q.dtype(), {q.dim(0), q.dim(1), rule.values_in_keys > 0 ? rule.values_in_keys : v.dim(2)});
  if (plan.paged) {
    const PagedPlan& paged = *plan.paged;
    check(!context.tape, "attention over the blocks of a pool has no gradients");
    const auto& [keys, values] = paged.cache->layer(layer, k_in, v_in);
    const RowCodes codes = paged.cache->format().codes;
    const std::array placed{PlaceRowsArgs{keys, k_in, paged.rows, codes},
                            PlaceRowsArgs{values, v_in, paged.rows, codes}};
    context.kernels.place_rows(context.stream, std::span(placed).first(values ? 2 : 1));
    attend_to_pool(context, paged.span(), codes, keys, values);
    return y;
  }
  if (plan.cache && rule.values_in_keys > 0) return attend_to_kept_keys(context), y;
  check(!plan.bias || !context.tape, "attention with a bias by distance has no gradients");
  if (context.tape || sinks) lse = context.empty(Context::wide(q.dtype()), {q.dim(1), q.dim(0)});
  AttentionSpan whole;
  if (plan.cache) {
    const auto [keys, values] = plan.cache->append(layer, k_in, v_in);
    k = keys, v = values;
    whole.q_end = int32_t(q.dim(0)), whole.k_end = int32_t(k.dim(0));
  }
  const AttentionShape shape = rule.shape(context, q, k, v, plan.cache ? std::span(&whole, 1) : spans());
  context.kernels.attention(context.stream, {.y = y,
                                             .lse = lse,
                                             .q = q,
                                             .k = k,
                                             .v = v,
                                             .shape = shape,
                                             .dropout = dropout,
                                             .bias = plan.bias,
                                             .key_bits = selection.key_bits});
  sinks.join(context, y, lse);
  return y;
}

// The cache is one block, which has room for all keys.
void AttentionOp::attend_to_kept_keys(Context& context) {
  plan.cache->append(layer, k, v);
  const auto& [keys, values] = plan.cache->layer(layer);
  const auto in_one_block = [](const Tensor& x) {
    return x ? x.reshape({1, x.dim(0), x.dim(1), x.dim(2)}) : Tensor();
  };
  const auto rows = int32_t(q.dim(0));
  constexpr int32_t kBlock = 0;
  const PagedSequence all{
      .q_end = rows, .num_keys = int32_t(plan.cache->length()) + int32_t(k.dim(0)), .blocks = &kBlock};
  attend_to_pool(context, {&all, 1}, RowCodes::none, in_one_block(keys), in_one_block(values));
}

void AttentionOp::attend_to_pool(Context& context, std::span<const PagedSequence> sequences, RowCodes codes,
                                 const Tensor& keys, const Tensor& values) {
  if (selection.most == 0 ||
      std::ranges::all_of(sequences, [&](const PagedSequence& s) { return s.num_keys <= selection.most; }))
    return attend_to_blocks(context, rule, sinks, sequences, codes, y, q, keys,
                            rule.values_in_keys > 0 ? Tensor() : values);
  if (selection.selected)
    return attend_to_blocks(context, rule, sinks, sequences, codes, y, q, keys, {}, selection.selected);
  const Tensor selected = context.empty(DType::i32, {q.dim(0), selection.most});
  context.kernels.select_keys(context.stream, {.selected = selected,
                                               .q = selection.q,
                                               .weights = selection.weights,
                                               .keys = values,
                                               .codes = codes,
                                               .sequences = sequences.data(),
                                               .num_sequences = int(sequences.size())});
  attend_to_blocks(context, rule, sinks, sequences, codes, y, q, keys, {}, selected);
  if (selection.found) *selection.found = selected;
}

std::array<Tensor, 3> AttentionOp::backward(Context& context, const Tensor& dy) {
  std::array<Tensor, 3> d{context.empty_like(q), context.empty_like(k), context.empty_like(v)};
  context.kernels.attention_backward(context.stream, {.dq = d[0],
                                                      .dk = d[1],
                                                      .dv = d[2],
                                                      .dy = dy,
                                                      .y = y,
                                                      .lse = lse,
                                                      .q = q,
                                                      .k = k,
                                                      .v = v,
                                                      .shape = rule.shape(context, q, k, v, spans()),
                                                      .dropout = dropout,
                                                      .key_bits = selection.key_bits});
  sinks.add_gradient(context, dy, y, lse);
  return d;
}

}  // namespace weft
