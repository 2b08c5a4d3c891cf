// Batches: which tokens every row of every step holds, as a pure function of (seed, step) for any number of ranks.
#pragma once
#include <cstdint>

#include "weft/data/batch_source.h"
#include "weft/data/token_file.h"

namespace weft {

struct BatchOptions {
  int32_t seq_len = 0;
  int32_t global_batch = 0;  // rows a step, over all ranks and micro-batches
  uint64_t seed = 0;
  // Rows are cut at the ends of documents: positions restart, tokens do not attend across, and the token that ends a
  // document predicts nothing.
  bool documents = false;
};

// Training. An epoch is a shuffle of windows of seq_len tokens that do not overlap; a random offset in [0, seq_len)
// moves them from epoch to epoch. An epoch leaves out fewer than 2 * seq_len tokens at the ends of the part.
class Batches final : public BatchSource {
 public:
  // UsageError when the part is too short for one window.
  Batches(TokenPart part, BatchOptions options);

  int64_t windows_per_epoch() const { return windows_; }

  // Rows [first_row, first_row + rows) of `step`, which counts from 0. Thread-safe for different batches.
  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  int64_t num_targets(int64_t step) const override;

  // Where the window of a row starts in the part.
  int64_t window_start(int64_t step, int32_t row) const;

 private:
  TokenPart part_;
  BatchOptions options_;
  int64_t windows_, offsets_;
};

// Evaluation: every token of the part but its first is predicted exactly once, by windows in order; rows past the end
// and the rest of the last window are padding (id 0, target -1).
class EvalBatches {
 public:
  // max_rows > 0 takes that many windows, spread evenly over the part; `seed` is not used.
  EvalBatches(TokenPart part, BatchOptions options, int64_t max_rows = 0);

  int64_t num_batches() const { return batches_; }
  void fill(int64_t batch_index, int32_t first_row, int32_t rows, Batch& batch) const;

 private:
  TokenPart part_;
  BatchOptions options_;
  int64_t windows_, taken_, batches_;
};

}  // namespace weft
