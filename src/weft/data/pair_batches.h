// PairBatches: pairs of sequences, an answer and one to compare it with, several to a row.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "weft/base/checksum.h"
#include "weft/data/batch_row.h"
#include "weft/data/batches.h"
#include "weft/data/best_fit.h"

namespace weft {

// Of a token file whose documents 2i and 2i + 1 belong together: a preferred and a rejected answer; or an answer and,
// for KTO, its prompt with another answer, whose first token is marked to be learned where the answer is desirable.
// Each has at most half a row; what is longer is cut at its end, and a pair of which one then has nothing to learn is
// left out. A step's pairs lie in as few rows as will do, each with its two sequences one behind the other, so that a
// step has fewer micro-batches than the recipe where rows are not needed.
class PairBatches final : public BatchSource {
 public:
  // options.seq_len is even. UsageError when no pair is left.
  PairBatches(TokenPart part, const BatchOptions& options);

  // An epoch is a shuffle of the pairs; a step has as many as a global batch has rows.
  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  int64_t num_micro_batches(int64_t step, int64_t most) const override;
  // A step's loss is the mean over its pairs.
  int64_t num_targets(int64_t) const override { return options_.global_batch; }

  struct Pair {
    int64_t begin[2];   // documents' first tokens
    int32_t tokens[2];  // with the last, which is only predicted
    int32_t targets[2];
    bool is_desirable;  // of KTO
  };
  int64_t num_pairs() const { return int64_t(pairs_.size()); }
  const Pair& pair(int64_t index) const { return pairs_[size_t(index)]; }
  // Pairs by their places in rows.
  struct Item {
    int64_t pair;
    int32_t lengths[2];  // of its sequences, of which the second follows the first
  };
  struct Rows {
    std::vector<Item> items;
    FittedRows rows;
  };
  std::shared_ptr<const Rows> rows_of(int64_t step) const;  // items are a step's pairs
  Rows rows_in_order(int64_t num_pairs) const;              // or the first ones of the file
  // Rows [first, first + count); those past the last are padding.
  void fill(const Rows& rows, int64_t first, int32_t count, Batch& batch) const;
  // Of all pairs as they are cut: equal where rows are.
  const Digest& content() const { return content_; }
  int64_t num_cut() const { return num_cut_; }
  int64_t num_left_out() const { return num_left_out_; }

 private:
  int64_t index_of(int64_t step, int64_t item) const;
  Item item(int64_t pair) const {
    const Pair& p = pairs_[size_t(pair)];
    return {pair, {p.tokens[0] - 1, p.tokens[1] - 1}};
  }
  Rows fitted(std::vector<Item> items) const;
  void fill_half(const Item& item, size_t half, BatchRow& row) const;

  TokenPart part_;
  BatchOptions options_;
  std::vector<Pair> pairs_;
  int64_t num_cut_ = 0, num_left_out_ = 0;
  Digest content_;
  // Of the step that was asked about last, whose micro-batches come one after the other.
  mutable std::mutex mutex_;
  mutable int64_t last_step_ = -1;
  mutable std::shared_ptr<const Rows> last_rows_;
};

}  // namespace weft
