// PolicyBatches: rows of one answer each that the model gave itself, round by round.
#pragma once
#include <span>
#include <vector>

#include "weft/data/batch_source.h"
#include "weft/data/prompts.h"
#include "weft/train/recipe.h"

namespace weft {

// A round is what policy.updates steps learn: prompts with `answers` answers to each, in order. Which prompts is a
// function of seed and round, and epochs are shuffles of them.
class PolicyBatches final : public BatchSource {
 public:
  // Leaves out prompts that leave an answer no room in a row. UsageError when none is left, or where one has no
  // answer that the reward asks for. Everything outlives this.
  PolicyBatches(const Recipe& recipe, const std::vector<Prompt>& prompts);

  struct Row {
    std::vector<int32_t> tokens;  // prompt and answer
    size_t prompt = 0;            // of them
    double advantage = 0, weight = 0;
    std::vector<float> given;  // log-probabilities of the answer's tokens as it was made; of fewer: the first ones
    std::vector<double> old_logps, reference;  // of the answer's tokens; empty where none are asked

    size_t answer_tokens() const { return tokens.size() - prompt; }
  };

  int64_t rows_of_round() const { return recipe_.train.global_batch * recipe_.policy.updates; }
  int64_t round_of(int64_t step) const { return step / recipe_.policy.updates; }
  // Which prompt a row of a round answers.
  const Prompt& prompt_of(int64_t round, int64_t row) const;
  int64_t num_prompts() const { return int64_t(prompts_.size()); }
  int64_t num_left_out() const { return num_left_out_; }

  // The round's rows, from now on.
  void begin(int64_t round, std::vector<Row> rows);
  bool has(int64_t step) const { return round_of(step) == round_; }
  Row& row(int64_t step, int64_t row) { return rows_[index_of(step, row)]; }
  std::span<const Row> rows() const { return rows_; }

  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  int64_t num_targets(int64_t) const override { return recipe_.train.global_batch; }

 private:
  size_t index_of(int64_t step, int64_t row) const {
    return size_t(step % recipe_.policy.updates * recipe_.train.global_batch + row);
  }

  const Recipe& recipe_;
  std::vector<const Prompt*> prompts_;
  int64_t num_left_out_ = 0, round_ = -1;
  std::vector<Row> rows_;
};

// Those that leave an answer room. UsageError when one has no answer that the reward asks for; key: that names them.
std::vector<const Prompt*> answerable(const Recipe& recipe, const std::vector<Prompt>& prompts, std::string_view key);

}  // namespace weft
