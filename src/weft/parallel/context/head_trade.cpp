// HeadTrade: packing for the all_to_all. A buffer holds vectors of D: rank by rank, tensor by tensor, head by head,
// the tokens of one rank.
#include "weft/parallel/context/head_trade.h"

#include <numeric>

#include "weft/parallel/context/copy_heads.h"

namespace weft {
namespace {

// Calls body(which, head, row) for every head of a share: 0 and a query head, or 1 and 2 and a key/value head. Its
// tokens are `num_tokens` rows of the buffer from `row` on. Returns the row behind the last.
template <class Body>
int64_t for_each_head(const HeadShare& share, bool with_keys, int64_t num_tokens, int64_t row, Body&& body) {
  for (int64_t i = 0; i < share.num_heads; ++i, row += num_tokens) body(size_t(0), share.first_head + i, row);
  for (size_t which = 1; with_keys && which < 3; ++which) {
    for (int64_t i = 0; i < share.num_kv_heads; ++i, row += num_tokens) body(which, share.first_kv_head + i, row);
  }
  return row;
}

// Where a head of this rank lies among its runs.
HeadsAt find_head(const HeadRuns& runs, const HeadTrade::Runs& tensors, size_t which, int64_t head) {
  for (int i = 0; i < runs.count; ++i) {
    const HeadRun& run = runs[i];
    const int64_t first = which == 0 ? run.first_head : run.first_kv_head;
    const int64_t count = which == 0 ? run.num_heads : run.num_kv_heads;
    if (head >= first && head < first + count) return {tensors[size_t(i)][which], 0, head - first};
  }
  throw Error("head {} is none of this rank", head);
}

}  // namespace

bool HeadTrade::shares_keys() const {
  int64_t behind = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    const HeadShare s = share(rank);
    if (s.num_heads == 0) continue;
    if (s.first_kv_head < behind) return true;
    behind = s.first_kv_head + s.num_kv_heads;
  }
  return false;
}

// By the counts in parallel_.
Tensor HeadTrade::exchange(Context& context, const Tensor& sent) const {
  const std::vector<int64_t>& counts = parallel_.received;
  Tensor received =
      context.empty(sent.dtype(), {std::accumulate(counts.begin(), counts.end(), int64_t(0)), 1, sent.dim(2)});
  parallel_.group.all_to_all(received, counts, sent, parallel_.sent);
  return received;
}

HeadTrade::Runs HeadTrade::to_heads(Context& context, const Three& tokens, bool with_keys) const {
  const int64_t num_tokens = layout_.num_tokens(), dim = tokens[0].dim(2);
  const DType dtype = tokens[0].dtype();
  const HeadShare mine = share(layout_.rank());
  int64_t num_rows = 0;
  parallel_.sent.clear();
  for (int rank = 0; rank < layout_.size(); ++rank) {
    parallel_.sent.push_back(rows_of(share(rank), with_keys));
    num_rows += parallel_.sent.back();
  }
  parallel_.received.assign(size_t(layout_.size()), rows_of(mine, with_keys));
  const Tensor sent = context.empty(dtype, {num_rows, 1, dim});
  int64_t row = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    row = for_each_head(share(rank), with_keys, num_tokens, row, [&](size_t which, int64_t head, int64_t at) {
      copy_heads(context.stream, {sent, at}, {tokens[which], 0, head}, num_tokens, 1);
    });
  }
  const Tensor received = exchange(context, sent);
  const HeadRuns my_runs = runs();
  Runs result;
  for (int i = 0; i < my_runs.count; ++i) {
    Three& run = result[size_t(i)];
    run[0] = context.empty(dtype, {layout_.num_all_tokens(), my_runs[i].num_heads, dim});
    for (size_t which = 1; with_keys && which < 3; ++which) {
      run[which] = context.empty(dtype, {layout_.num_all_tokens(), my_runs[i].num_kv_heads, dim});
    }
  }
  row = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    row = for_each_head(mine, with_keys, num_tokens, row, [&](size_t which, int64_t head, int64_t at) {
      const HeadsAt to = find_head(my_runs, result, which, head);
      layout_.for_each_span(rank, [&](const TokenSpan& span) {
        copy_heads(context.stream, {to.tensor, span.first_token, to.head}, {received, at + span.begin}, span.count,
                   1);
      });
    });
  }
  return result;
}

HeadTrade::Three HeadTrade::to_tokens(Context& context, const Runs& heads, bool with_keys, DType dtype,
                                      int64_t dim) const {
  const int64_t num_tokens = layout_.num_tokens();
  const HeadShare mine = share(layout_.rank());
  const HeadRuns my_runs = runs();
  parallel_.received.clear();
  for (int rank = 0; rank < layout_.size(); ++rank) parallel_.received.push_back(rows_of(share(rank), with_keys));
  parallel_.sent.assign(size_t(layout_.size()), rows_of(mine, with_keys));
  const Tensor sent = context.empty(dtype, {layout_.size() * rows_of(mine, with_keys), 1, dim});
  int64_t row = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    row = for_each_head(mine, with_keys, num_tokens, row, [&](size_t which, int64_t head, int64_t at) {
      const HeadsAt from = find_head(my_runs, heads, which, head);
      layout_.for_each_span(rank, [&](const TokenSpan& span) {
        copy_heads(context.stream, {sent, at + span.begin}, {from.tensor, span.first_token, from.head}, span.count,
                   1);
      });
    });
  }
  const Tensor received = exchange(context, sent);
  Three tokens{context.empty(dtype, {num_tokens, heads_, dim})};
  if (with_keys) {
    for (size_t which = 1; which < 3; ++which) tokens[which] = context.empty(dtype, {num_tokens, kv_heads_, dim});
  }
  const bool is_sum = with_keys && shares_keys();
  row = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    row = for_each_head(share(rank), with_keys, num_tokens, row, [&](size_t which, int64_t head, int64_t at) {
      if (which > 0 && is_sum) return;
      copy_heads(context.stream, {tokens[which], 0, head}, {received, at}, num_tokens, 1);
    });
  }
  if (is_sum) sum_keys(context, received, tokens);
  return tokens;
}

void HeadTrade::sum_keys(Context& context, const Tensor& received, const Three& tokens) const {
  const int64_t num_tokens = layout_.num_tokens(), dim = received.dim(2);
  const auto first_row = [&](size_t which, int64_t head) {
    return (int64_t(which - 1) * kv_heads_ + head) * num_tokens;
  };
  Tensor sums = context.empty(Context::wide(received.dtype()), {2 * kv_heads_ * num_tokens, 1, dim});
  context.kernels.fill(context.stream, sums, 0);
  int64_t row = 0;
  for (int rank = 0; rank < layout_.size(); ++rank) {
    row = for_each_head(share(rank), true, num_tokens, row, [&](size_t which, int64_t head, int64_t at) {
      if (which == 0) return;
      context.kernels.accumulate(context.stream, sums.slice_rows(first_row(which, head), num_tokens),
                                 received.slice_rows(at, num_tokens));
    });
  }
  if (sums.dtype() != received.dtype()) {
    const Tensor rounded = context.empty(received.dtype(), sums.shape());
    context.kernels.convert(context.stream, rounded, sums);
    sums = rounded;
  }
  for (size_t which = 1; which < 3; ++which) {
    for (int64_t head = 0; head < kv_heads_; ++head) {
      copy_heads(context.stream, {tokens[which], 0, head}, {sums, first_row(which, head)}, num_tokens, 1);
    }
  }
}

}  // namespace weft
