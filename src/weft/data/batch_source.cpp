// SyntheticBatches: tokens from the counter-based generator.
#include "weft/data/batch_source.h"

#include "weft/base/philox.h"

namespace weft {

void SyntheticBatches::fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const {
  batch.reset(rows, seq_len_);
  for (int32_t r = 0; r < rows; ++r) {
    const uint64_t row = uint64_t(step) * uint64_t(global_batch_) + uint64_t(first_row + r);
    const auto token = [&](int32_t i) { return int32_t(philox(seed_, uint64_t(i), row)[0] % uint32_t(vocab_)); };
    int32_t next = token(0);
    for (int32_t i = 0; i < seq_len_; ++i) {
      const size_t at = size_t(r) * size_t(seq_len_) + size_t(i);
      batch.ids[at] = next;
      next = token(i + 1);
      batch.targets[at] = next;
      batch.positions[at] = i;
    }
    batch.sequence_starts.push_back(r * seq_len_);
  }
  batch.sequence_starts.push_back(rows * seq_len_);
  batch.num_targets = int64_t(rows) * seq_len_;
}

}  // namespace weft
