// VocabChunk: the logits of some tokens at a time, of which each rank of a group has some columns.
#pragma once
#include "weft/autograd/ops/head_loss.h"
#include "weft/comm/communicator.h"

namespace weft {

class VocabChunk {
 public:
  // Room for logits of rows of x. head: cut by rows over the group; null: it is whole.
  VocabChunk(Context& context, const HeadView& head, Communicator* group, const Tensor& x);

  // Of one call; the same on every rank of the group.
  int64_t most_rows() const { return buffer_.dim(0); }
  // logits[rows, V here] of rows of x from `begin` on, capped; valid until the next call. capped: where not null,
  // what head_backward needs of them.
  Tensor logits(Context& context, const Tensor& x, int64_t begin, int64_t rows, Tensor* capped = nullptr) const;
  // Of the logits of the last call over all columns: lse [rows], the log of the sum of exponentials, and the losses
  // [rows] of the targets, 0 where they are -1. Takes no memory.
  void log_sums(Context& context, const int32_t* targets, const Tensor& losses, const Tensor& lse) const;

 private:
  HeadView head_;
  Communicator* group_;
  Tensor buffer_;      // [most_rows, V here]
  Tensor mine_, all_;  // [most_rows, 3] of each rank: statistics of these columns, and of all
};

}  // namespace weft
