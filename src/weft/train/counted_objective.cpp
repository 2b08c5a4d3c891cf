// counted_objective: losses whose figures are nothing.
#include "weft/train/counted_objective.h"

#include <algorithm>

#include "weft/train/distill_objective.h"
#include "weft/train/policy/policy_objective.h"
#include "weft/train/preference_objective.h"

namespace weft {
namespace {

bool has_pairs(const Recipe& recipe) { return recipe.preference.method != PreferenceMethod::none; }

// Answers that are compared. The reference is the model itself, asked before the first step: what that takes is less
// than what a step does.
class EqualPairs final : public Objective {
 public:
  EqualPairs(const Recipe& recipe, Trainer& trainer) : seq_len_(recipe.train.seq_len), spread_(trainer.mesh().cp()) {}
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override {
    const auto nothing = [](std::span<const double>, std::span<double>) { return 0.0; };
    const int64_t half = seq_len_ / 2, halves = slot.pass.num_tokens * spread_.size() / half;
    std::vector<SequenceAt> sequences;
    for (int64_t i = 0; i < halves; ++i) sequences.push_back({i * half, half});
    return answers_loss(context, part, slot, seq_len_, sequences, spread_, x, nothing, grad_scale, brackets);
  }

 private:
  int64_t seq_len_;
  Communicator& spread_;
};

// Answers of the model. Where it asks a reference of its own, or a reward model, these are there beside it.
class EqualAnswers final : public Objective {
 public:
  EqualAnswers(const Recipe& recipe, const ModelConfig* reward, Trainer& trainer) : config_(recipe.policy) {
    const auto put = [&](const ModelConfig& config) {
      beside_.push_back(std::make_unique<ForwardModel>(trainer.context(), trainer.mesh(), config, nullptr,
                                                       recipe.dtype(), BlockChoice{}));
    };
    if (has_reference_beside(recipe)) put(recipe.model);
    if (reward) put(*reward);
  }
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override {
    const auto nothing = [](std::span<const double>, std::span<double>) { return 0.0; };
    return answer_tokens_loss(context, part, slot, x, config_, nothing, grad_scale, brackets);
  }

 private:
  const PolicyConfig& config_;
  std::vector<std::unique_ptr<ForwardModel>> beside_;
};

}  // namespace

EqualRows::EqualRows(const Recipe& recipe)
    : seq_len_(int32_t(recipe.train.seq_len)),
      sequence_len_(seq_len_ / (has_pairs(recipe) ? 2 : 1)),
      num_targets_(recipe.train.seq_len * recipe.train.global_batch) {}

void EqualRows::fill(int64_t, int32_t, int32_t rows, Batch& batch) const {
  if (batch.rows == rows && batch.seq_len == seq_len_) return;
  batch.reset(rows, seq_len_);
  std::fill(batch.ids.begin(), batch.ids.end(), 0);
  std::fill(batch.targets.begin(), batch.targets.end(), 0);
  for (size_t i = 0; i < batch.positions.size(); ++i) batch.positions[i] = int32_t(i) % sequence_len_;
  for (int32_t start = 0; start <= rows * seq_len_; start += sequence_len_) batch.sequence_starts.push_back(start);
  batch.num_targets = int64_t(rows) * seq_len_;
}

std::unique_ptr<Objective> counted_objective(const Recipe& recipe, const EqualRows& rows, const ModelConfig* teacher,
                                             Trainer& trainer) {
  if (has_pairs(recipe)) return std::make_unique<EqualPairs>(recipe, trainer);
  if (recipe.policy.is_on()) return std::make_unique<EqualAnswers>(recipe, teacher, trainer);
  if (teacher) return std::make_unique<DistillObjective>(recipe, rows, *teacher, trainer);
  return nullptr;
}

}  // namespace weft
