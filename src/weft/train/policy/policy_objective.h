// PolicyObjective: the model answers prompts, is told what its answers are worth, and learns from them.
#pragma once
#include <memory>
#include <vector>

#include "weft/parallel/token_loss.h"
#include "weft/pretrained/forward_model.h"
#include "weft/text/tokenizer.h"
#include "weft/train/policy/answerer.h"
#include "weft/train/policy/policy_batches.h"
#include "weft/train/policy/reward_model.h"
#include "weft/train/policy/rewards.h"
#include "weft/train/policy/shared_answers.h"
#include "weft/train/step_lines.h"
#include "weft/train/trainer.h"

namespace weft {

// The reference is the model without its adapters, or, where all of it is trained, the one that training starts from,
// which then is beside it. All calls are collective; everything that it is given outlives this.
class PolicyObjective final : public Objective {
 public:
  // What stands beside the model: what answers are worth, by a rule on texts or by another model, of which one is
  // null; and the reference, null where the method asks for none, or where it is the model without its adapters.
  struct Beside {
    std::unique_ptr<Reward> reward;
    std::unique_ptr<RewardModel> reward_model;
    std::unique_ptr<ForwardModel> reference;
  };
  // valid: prompts whose answers are scored and not learned, or none.
  PolicyObjective(const Recipe& recipe, PolicyBatches& batches, const std::vector<Prompt>& valid,
                  const Tokenizer& tokenizer, std::unique_ptr<Answerer> answerer, Beside beside, const Mesh& mesh);

  bool begin_step(Trainer& trainer, int64_t step) override;
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override;
  Var evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
               Brackets& brackets) override;
  bool validates() const override { return !valid_.empty(); }
  std::optional<Validation> validate(Trainer& trainer, FunctionRef<bool()> is_over) override;
  std::optional<PolicyFigures> figures(Trainer& trainer) override;

 private:
  // Of answers to questions; none where somebody asked to stop meanwhile.
  struct Answers : SharedAnswers {
    std::vector<const Prompt*> prompts = {};  // to which they are
    double seconds = 0, tokens_per_s = 0;
  };
  Answers answer(Trainer& trainer, std::span<const Question> questions, std::vector<const Prompt*> prompts);
  bool begin_round(Trainer& trainer, int64_t round);
  Answers attempt(Trainer& trainer, int64_t round, int64_t number, std::span<const int64_t> groups);
  void note(const Answers& answers);
  std::vector<PolicyBatches::Answer> learned(Answers answers) const;
  void log(int64_t step, std::span<const double> rewards);
  void measure(Trainer& trainer, int64_t round);
  double rule(const MicroBatches::Slot& slot, std::span<const double> logps, std::span<double> dlogps);
  std::vector<double> log_ratios(const MicroBatches::Slot& slot, std::span<const double> logps);
  // visit(answer, its first token that is here, where that stands among this rank's tokens, how many are here) of the
  // answers in some tokens of a step, counted from a row on.
  template <class Visit>
  void each_part(int64_t step, int64_t first_row, std::span<const TokenSpan> tokens, Visit&& visit);

  const Recipe& recipe_;
  PolicyBatches& batches_;
  std::vector<const Prompt*> valid_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<Answerer> answerer_;
  Beside beside_;
  const Mesh& mesh_;
  MicroBatches read_;  // by the reference
  // Of the last evaluation: log-probabilities of this rank's tokens, and where among its rows' tokens these stand.
  std::vector<double> measured_;
  std::vector<TokenSpan> measured_tokens_;
  PolicyFigures round_;  // of the round's answers
  PolicySums sums_;      // of this rank's micro-batches since figures()
  double gap_ = 0, gap_tokens_ = 0;
  std::optional<StepLines> log_;  // of rank 0
};

// The part of a decoder's pass behind its blocks that PolicyObjective's losses are.
Var answer_tokens_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                       const PolicyConfig& config, const TokenRule& rule, float grad_scale, Brackets& brackets);

}  // namespace weft
