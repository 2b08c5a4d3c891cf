// PairBatches: rows of two sequences each, an answer and one to compare it with.
#pragma once
#include <vector>

#include "weft/base/checksum.h"
#include "weft/data/batches.h"

namespace weft {

// Of a token file whose documents 2i and 2i + 1 belong together: a preferred and a rejected answer; or an answer and,
// for KTO, its prompt with another answer, whose first token is marked to be learned where the answer is desirable.
// The first half of a row has the one and the second half the other; what is longer is cut at its end, and a pair of
// which a half then has nothing to learn is left out.
class PairBatches final : public BatchSource {
 public:
  // options.seq_len is even. UsageError when no pair is left.
  PairBatches(TokenPart part, const BatchOptions& options);

  // An epoch is a shuffle of the pairs; a row is one pair.
  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  // As many as rows: a step's loss is the mean over its pairs.
  int64_t num_targets(int64_t) const override { return options_.global_batch; }

  struct Pair {
    int64_t begin[2];   // documents' first tokens
    int32_t tokens[2];  // with the last, which is only predicted
    int32_t targets[2];
    bool is_desirable;  // of KTO
  };
  int64_t num_pairs() const { return int64_t(pairs_.size()); }
  const Pair& pair(int64_t index) const { return pairs_[size_t(index)]; }
  // Which pair a row of a step is.
  int64_t index_of(int64_t step, int64_t row) const;
  // Pairs [first, first + rows) in the file's order; rows past the last are padding.
  void fill_in_order(int64_t first, int32_t rows, Batch& batch) const;
  // Of all pairs as they are cut: equal where rows are.
  const Digest& content() const { return content_; }
  int64_t num_cut() const { return num_cut_; }
  int64_t num_left_out() const { return num_left_out_; }

 private:
  void fill_row(const Pair* pair, int32_t row, Batch& batch) const;

  TokenPart part_;
  BatchOptions options_;
  std::vector<Pair> pairs_;
  int64_t num_cut_ = 0, num_left_out_ = 0;
  Digest content_;
};

}  // namespace weft
