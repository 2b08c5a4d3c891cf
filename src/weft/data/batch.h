// Batch: rows of token ids with what they should predict, in storage that is reused from step to step.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

struct Batch {
  int32_t rows = 0, seq_len = 0;
  std::vector<int32_t> ids;              // [rows * seq_len]
  std::vector<int32_t> targets;          // [rows * seq_len]; -1: nothing to predict here
  std::vector<int32_t> positions;        // [rows * seq_len], from 0 at each sequence's start
  std::vector<int32_t> sequence_starts;  // [sequences + 1]: 0, ..., rows * seq_len; tokens attend within a sequence
  int64_t num_targets = 0;               // targets that are not -1

  // Of look_further, or empty: the tokens that come next, and what is to be predicted from these.
  std::vector<int32_t> next_ids, further_targets;  // [rows * seq_len]

  // Makes room for rows of seq_len tokens and empties `sequence_starts`; allocates only when it grows.
  void reset(int32_t new_rows, int32_t new_seq_len);
  // Of a batch that is filled: what a model is to predict one token further on, within sequences. The last token of
  // one predicts nothing; where nobody knows what comes after it, it stands for that itself.
  void look_further();
};

}  // namespace weft
