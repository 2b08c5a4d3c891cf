// pass_of: the forward pass over a batch of rows.
#pragma once
#include "weft/data/batch.h"
#include "weft/nn/pass.h"

namespace weft {

// first_token is the index of the batch's first token among all of the step. The batch and `spans`, whose storage
// this fills again, outlive the pass.
inline Pass pass_of(const Batch& batch, int64_t first_token, std::vector<AttentionSpan>& spans) {
  spans.reserve(batch.sequence_starts.capacity());
  fill_causal_spans(spans, batch.sequence_starts, first_token);
  return {.ids = batch.ids.data(),
          .num_tokens = int64_t(batch.rows) * batch.seq_len,
          .seq_len = batch.seq_len,
          .attention = {.positions = batch.positions.data(), .spans = spans.data(), .num_spans = int(spans.size())}};
}

}  // namespace weft
