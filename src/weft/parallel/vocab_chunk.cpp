// VocabChunk: a product, and statistics that ranks exchange.
#include "weft/parallel/vocab_chunk.h"

#include <algorithm>

namespace weft {

VocabChunk::VocabChunk(Context& context, const HeadView& head, Communicator* group, const Tensor& x)
    : head_(head), group_(group) {
  // The same chunks on every rank, whoever holds one column more.
  const int64_t columns = even_cut(head.weight->placement.whole[0], 0, group ? group->size() : 1).count;
  const int64_t rows = std::min(x.rows(), head_rows_per_chunk(context, columns, x.dtype()));
  buffer_ = context.empty(x.dtype(), {rows, head.weight->shape[0]});
  mine_ = context.empty(Context::wide(x.dtype()), {rows, 3});
  if (group) all_ = context.empty(mine_.dtype(), {group->size() * rows * 3});
}

Tensor VocabChunk::logits(Context& context, const Tensor& x, int64_t begin, int64_t rows, Tensor* capped) const {
  Tensor logits = buffer_.slice_rows(0, rows);
  Tensor kept = head_logits(context, head_, logits, x.slice_rows(begin, rows), capped != nullptr);
  if (capped) *capped = std::move(kept);
  return logits;
}

void VocabChunk::log_sums(Context& context, const int32_t* targets, const Tensor& losses, const Tensor& lse) const {
  const Kernels& k = context.kernels;
  const int64_t rows = losses.numel();
  const Tensor mine = mine_.slice_rows(0, rows);
  k.cross_entropy_stats(context.stream, mine, buffer_.slice_rows(0, rows), targets, head_.weight->placement.begin[0]);
  Tensor all = mine.reshape({1, rows, 3});
  if (group_) {
    all = all_.slice_flat(0, {group_->size(), rows, 3});
    group_->all_gather(all, mine);
  }
  k.cross_entropy_combine(context.stream, losses, lse, all, targets);
}

}  // namespace weft
