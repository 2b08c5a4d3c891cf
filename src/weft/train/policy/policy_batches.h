// PolicyBatches: rows of answers that the model gave itself, round by round.
#pragma once
#include <span>
#include <vector>

#include "weft/data/batch_row.h"
#include "weft/data/batch_source.h"
#include "weft/data/prompts.h"
#include "weft/train/recipe.h"

namespace weft {

// A round is what policy.updates steps learn: prompts with `answers` answers to each, in order. Which prompts is a
// function of seed and round, and epochs are shuffles of them. A step's answers lie in as few rows as will do, each
// with its prompt as a sequence of its own; those that nothing is learned from are in none, so that a step has fewer
// micro-batches than the recipe where rows are not needed.
class PolicyBatches final : public BatchSource {
 public:
  // Leaves out prompts that leave an answer no room in a row. UsageError when none is left, or where one has no
  // answer that the reward asks for. Everything outlives this.
  PolicyBatches(const Recipe& recipe, const std::vector<Prompt>& prompts);

  struct Answer {
    std::vector<int32_t> tokens;  // prompt and answer
    size_t prompt = 0;            // of them
    double advantage = 0, weight = 0;
    bool is_cut = false;
    std::vector<float> given;  // log-probabilities of the answer's tokens as it was made; of fewer: the first ones
    std::vector<double> old_logps, reference;  // of the answer's tokens; empty where none are asked

    size_t answer_tokens() const { return tokens.size() - prompt; }
  };
  // Of a row: an answer of its step, whose text begins at a token of the row.
  struct Placed {
    int32_t answer, begin;
  };

  int64_t answers_of_step() const { return recipe_.train.global_batch; }
  int64_t answers_of_round() const { return answers_of_step() * recipe_.policy.updates; }
  int64_t round_of(int64_t step) const { return step / recipe_.policy.updates; }
  // Which prompt an answer of a round is to; in attempts behind the first, which is none of an epoch.
  const Prompt& prompt_of(int64_t round, int64_t answer, int64_t attempt = 0) const;
  int64_t num_prompts() const { return int64_t(prompts_.size()); }
  int64_t num_left_out() const { return num_left_out_; }

  // The round's answers, from now on.
  void begin(int64_t round, std::vector<Answer> answers);
  bool has(int64_t step) const { return round_of(step) == round_; }
  Answer& answer(int64_t step, const Placed& placed) {
    return answers_[size_t(update_of(step) * answers_of_step() + placed.answer)];
  }
  std::span<const Answer> answers() const { return answers_; }
  // Of rows behind the last: nothing.
  std::span<const Placed> row(int64_t step, int64_t row) const;

  void fill(int64_t step, int32_t first_row, int32_t rows, Batch& batch) const override;
  int64_t num_micro_batches(int64_t step, int64_t most) const override;
  int64_t num_targets(int64_t) const override { return answers_of_step(); }

 private:
  using Rows = std::vector<std::vector<Placed>>;
  int64_t update_of(int64_t step) const { return step % recipe_.policy.updates; }
  bool is_learned(const Answer& answer) const;
  Rows pack(int64_t update) const;
  void fill_row(int64_t step, std::span<const Placed> placed, BatchRow& row) const;

  const Recipe& recipe_;
  std::vector<const Prompt*> prompts_;
  int64_t num_left_out_ = 0, round_ = -1;
  std::vector<Answer> answers_;
  std::vector<Rows> rows_;  // of each step
};

// Those that leave an answer room. UsageError when one has no answer that the reward asks for; key: that names them.
std::vector<const Prompt*> answerable(const Recipe& recipe, const std::vector<Prompt>& prompts, std::string_view key);

}  // namespace weft
