// Spread attention: keys to their places, then the blocks that each rank's rows need to that rank.
#include "weft/parallel/context/spread_attention.h"

namespace weft {
namespace {

// Of all ranks' rows x, those whose keys lie here, to their places.
void place_own(Context& context, const SpreadPlan& plan, const Tensor& pool, const Tensor& x, RowCodes codes) {
  const Tensor all = context.empty(x.dtype(), {x.dim(0) * plan.group.size(), x.dim(1), x.dim(2)});
  plan.group.all_gather(all, x);
  std::vector<int32_t> own;
  for (const int32_t place : plan.places)
    if (place >= 0) own.push_back(place);
  if (own.empty()) return;
  const Tensor packed = context.empty(x.dtype(), {int64_t(own.size()), x.dim(1), x.dim(2)});
  int64_t filled = 0;
  for (size_t t = 0; t < plan.places.size();) {
    size_t end = t;
    while (end < plan.places.size() && plan.places[end] >= 0) ++end;
    const auto count = int64_t(end - t);
    if (count > 0) context.stream.copy(packed.slice_rows(filled, count), all.slice_rows(int64_t(t), count));
    filled += count, t = end + 1;
  }
  context.kernels.place_rows(context.stream, std::array{PlaceRowsArgs{pool, packed, own.data(), codes}});
}

// The blocks that this rank's rows need, whole: [blocks, tokens of a block, K, D].
Tensor gather_blocks(Context& context, const SpreadPlan& plan, const Tensor& pool) {
  const int64_t size = plan.group.size(), tokens = pool.dim(1);
  const size_t run = pool.bytes() / size_t(pool.dim(0));
  int64_t num_sent = 0;
  std::vector<int64_t> sent_counts,
      received_counts(size_t(size), int64_t(plan.needed[size_t(plan.group.rank())].size()));
  for (const auto& blocks : plan.needed)
    sent_counts.push_back(int64_t(blocks.size())), num_sent += sent_counts.back();
  const Tensor sent = context.empty(pool.dtype(), {num_sent, tokens, pool.dim(2), pool.dim(3)});
  int64_t filled = 0;
  for (const auto& blocks : plan.needed)
    for (const int32_t block : blocks) context.stream.copy(sent.slice_rows(filled++, 1), pool.slice_rows(block, 1));
  const int64_t count = received_counts.front();
  const Tensor received = context.empty(pool.dtype(), {size * count, tokens, pool.dim(2), pool.dim(3)});
  plan.group.all_to_all(received, received_counts, sent, sent_counts);
  const Tensor whole = context.empty(pool.dtype(), {count, size * tokens, pool.dim(2), pool.dim(3)});
  for (int64_t r = 0; r < size && count > 0; ++r)
    context.stream.copy_rows({whole, size_t(r) * run, size_t(size) * run}, {received, size_t(r * count) * run, run},
                             count, run);
  return whole;
}

}  // namespace

Tensor spread_attention(Context& context, const PagedPlan& plan, int layer, const AttentionRule& rule,
                        const AttentionSinks& sinks, const Tensor& q, const Tensor& k, const Tensor& v) {
  check(!context.tape, "attention over the blocks of a pool has no gradients");
  const auto& [keys, values] = plan.cache->layer(layer, k, v);
  const RowCodes codes = plan.cache->format().codes;
  place_own(context, *plan.spread, keys, k, codes);
  if (v) place_own(context, *plan.spread, values, v, codes);
  const Tensor all_keys = gather_blocks(context, *plan.spread, keys);
  const Tensor all_values = v ? gather_blocks(context, *plan.spread, values) : Tensor();
  Tensor y = context.empty(q.dtype(), {q.dim(0), q.dim(1), v ? v.dim(2) : rule.values_in_keys});
  const int64_t rows = plan.num_sequences > 0 ? plan.sequences[plan.num_sequences - 1].q_end : 0;
  if (rows < q.dim(0)) context.kernels.fill(context.stream, y.slice_rows(rows, q.dim(0) - rows), 0);
  if (rows == 0) return y;
  attend_to_blocks(context, rule, sinks, plan.span(), codes, y.slice_rows(0, rows), q.slice_rows(0, rows), all_keys,
                   all_values);
  return y;
}

}  // namespace weft
