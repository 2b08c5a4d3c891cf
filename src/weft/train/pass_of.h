// pass_of: the forward pass over a batch of rows.
#pragma once
#include "weft/data/batch.h"
#include "weft/nn/pass.h"

namespace weft {

// The sequences of a batch, as layers see them.
struct SequenceSpans {
  std::vector<AttentionSpan> attention;
  std::vector<TokenRun> runs;

  void fill(std::span<const int32_t> starts, int64_t first_token) {
    fill_causal_spans(attention, starts, first_token);
    fill_token_runs(runs, starts);
  }
};

// first_token is the index of the batch's first token among all of the step. The batch and `spans`, whose storage
// this fills again, outlive the pass.
inline Pass pass_of(const Batch& batch, int64_t first_token, SequenceSpans& spans) {
  spans.attention.reserve(batch.sequence_starts.capacity()), spans.runs.reserve(batch.sequence_starts.capacity());
  spans.fill(batch.sequence_starts, first_token);
  return {.ids = batch.ids.data(),
          .num_tokens = int64_t(batch.rows) * batch.seq_len,
          .seq_len = batch.seq_len,
          .attention = {.positions = batch.positions.data(),
                        .spans = spans.attention.data(),
                        .num_spans = int(spans.attention.size())},
          .runs = {spans.runs.data(), int(spans.runs.size())}};
}

}  // namespace weft
