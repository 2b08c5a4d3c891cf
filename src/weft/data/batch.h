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

  // Makes room for rows of seq_len tokens and empties `sequence_starts`; allocates only when it grows.
  void reset(int32_t new_rows, int32_t new_seq_len);
};

}  // namespace weft
