// counted_objective: rows, and what a run trains for, where nothing is computed and what it takes is counted.
#pragma once
#include <memory>

#include "weft/data/batch_source.h"
#include "weft/train/recipe.h"
#include "weft/train/trainer.h"

namespace weft {

// Rows that are all alike, of one sequence, or of two where answers are compared, and cost nothing to make.
class EqualRows final : public BatchSource {
 public:
  explicit EqualRows(const Recipe& recipe);

  void fill(int64_t, int32_t, int32_t rows, Batch& batch) const override;
  int64_t num_targets(int64_t) const override { return num_targets_; }

 private:
  int32_t seq_len_, sequence_len_;
  int64_t num_targets_;
};

// What a step takes as that of make_objective does, over meta memory; null where that is null. teacher: what
// beside_of says, be it a teacher or a reward model; it and the others outlive this.
std::unique_ptr<Objective> counted_objective(const Recipe& recipe, const EqualRows& rows, const ModelConfig* teacher,
                                             Trainer& trainer);

}  // namespace weft
