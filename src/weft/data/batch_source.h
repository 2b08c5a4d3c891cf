// BatchSource: where a trainer's rows come from: a text, or made-up tokens for measurements.
#pragma once
#include "weft/data/batch.h"

namespace weft {

// A pure function of the step and the row: every rank may ask for any rows, in any order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Rows [first_row, first_row + rows) of the global batch of `step`, which counts from 0.
  virtual void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const = 0;
  // Micro-batches of each data-parallel rank, of which a step has `most` unless its rows fill fewer. Of a step that
  // is about to begin.
  virtual int64_t num_micro_batches(int64_t /*step*/, int64_t most) const { return most; }
  // Targets of the whole step, which all ranks divide their summed loss by.
  virtual int64_t num_targets(int64_t step) const = 0;
};

// Rows of made-up tokens, without documents.
class SyntheticBatches final : public BatchSource {
 public:
  SyntheticBatches(int32_t seq_len, int32_t global_batch, int32_t vocab, uint64_t seed)
      : seq_len_(seq_len), global_batch_(global_batch), vocab_(vocab), seed_(seed) {}
  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  int64_t num_targets(int64_t) const override { return int64_t(seq_len_) * global_batch_; }

 private:
  int32_t seq_len_, global_batch_, vocab_;
  uint64_t seed_;
};

}  // namespace weft
