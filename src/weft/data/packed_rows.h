// PackedRows: examples of a token file put into rows whole, several to a row; and batches of such rows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/data/batches.h"

namespace weft {

// A function of the file, the length of rows and the seed. Examples longer than a row are cut at its end; one without
// anything left to learn is left out.
class PackedRows {
 public:
  // UsageError when no example is left.
  PackedRows(TokenPart part, int32_t seq_len, uint64_t seed);

  int64_t num_rows() const { return int64_t(row_begins_.size()) - 1; }
  // Every example is a sequence; what is left at the end of a row is padding. A row past the last is padding.
  void fill(int64_t row, int32_t into, Batch& batch) const;
  int64_t num_targets(int64_t row) const { return row_targets_[size_t(row)]; }

  struct Summary {
    int64_t examples = 0;  // in rows
    int64_t cut = 0;       // of these, longer than a row
    int64_t left_out = 0;  // cut before their answer, or without one
    int64_t rows = 0;
    double filled = 0;  // share of the rows' tokens that are no padding
  };
  const Summary& summary() const { return summary_; }

 private:
  struct Example {
    int64_t begin;
    int32_t tokens;  // with the last, which is only predicted
    int32_t targets;
    bool is_cut;
  };
  std::vector<Example> find_examples() const;
  void pack(std::vector<Example> examples, uint64_t seed);

  TokenPart part_;
  int32_t seq_len_;
  std::vector<Example> examples_;    // in the order of rows
  std::vector<int64_t> row_begins_;  // in examples_; with the end of the last
  std::vector<int64_t> row_targets_;
  Summary summary_;
};

// Training: an epoch is a shuffle of the rows.
class PackedBatches final : public BatchSource {
 public:
  PackedBatches(TokenPart part, const BatchOptions& options);
  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  int64_t num_targets(int64_t step) const override;
  const PackedRows::Summary& summary() const { return rows_.summary(); }

 private:
  int64_t row_of(int64_t step, int32_t row) const;

  PackedRows rows_;
  BatchOptions options_;
};

// Evaluation: every row once, in order; see EvalBatches for max_rows.
class PackedEvalBatches {
 public:
  PackedEvalBatches(TokenPart part, const BatchOptions& options, int64_t max_rows = 0);
  int64_t num_batches() const { return batches_; }
  void fill(int64_t batch_index, int32_t first_row, int32_t rows, Batch& batch) const;

 private:
  PackedRows rows_;
  BatchOptions options_;
  int64_t taken_, batches_;
};

// Of windows of a text, or of packed examples.
std::unique_ptr<BatchSource> make_batches(TokenPart part, const BatchOptions& options);
// "1000 examples in 312 rows, 97% of them filled; ..."
std::string describe(const PackedRows::Summary& summary, int32_t seq_len);

}  // namespace weft
