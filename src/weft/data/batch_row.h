// BatchRow: a row of a batch, written sequence by sequence.
#pragma once
#include "weft/data/batch.h"

namespace weft {

// Rows are written in order, from the first on.
class BatchRow {
 public:
  BatchRow(Batch& batch, int64_t row)
      : batch_(batch), at_(size_t(row) * size_t(batch.seq_len)), end_(at_ + size_t(batch.seq_len)) {}

  int64_t at() const { return int64_t(at_); }  // among the tokens of all rows
  void begin_sequence() {
    batch_.sequence_starts.push_back(int32_t(at_));
    position_ = 0;
  }
  void put(int32_t id, int32_t target) {
    batch_.ids[at_] = id, batch_.targets[at_] = target, batch_.positions[at_] = position_++;
    batch_.num_targets += target >= 0, ++at_;
  }
  // What is left is a sequence of its own, of which nothing is learned.
  void pad() {
    if (at_ < end_) begin_sequence();
    while (at_ < end_) put(0, -1);
  }

 private:
  Batch& batch_;
  size_t at_;
  const size_t end_;
  int32_t position_ = 0;
};

}  // namespace weft
