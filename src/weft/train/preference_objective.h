// PreferenceObjective: pairs of answers, compared with each other and with what a reference model says of them.
#pragma once
#include <string>
#include <vector>

#include "weft/data/pair_batches.h"
#include "weft/parallel/token_loss.h"
#include "weft/train/trainer.h"

namespace weft {

// Pairs, and the reference's log-probabilities of both answers of each, in the order of the file.
struct ReferredPairs {
  const PairBatches* batches = nullptr;
  std::vector<double> reference = {};  // [pairs, 2]; empty where the method needs none

  Answer answer(int64_t pair, size_t half, double logp) const;
};

// The reference is the trainer's model without its adapters, or, where it has none, as it is when it is measured.
// Batches and configuration outlive this. valid: null where there are none.
class PreferenceObjective final : public Objective {
 public:
  // spread: the ranks over which rows are cut (Mesh::cp).
  PreferenceObjective(const PreferenceConfig& config, const PairBatches& batches, const PairBatches* valid,
                      const TrainConfig& train, Communicator& spread)
      : config_(config), train_(train), spread_(spread), pairs_{&batches}, valid_{valid} {}

  // Those that are trained and those that are not, whose references are to be measured or read before the first step.
  ReferredPairs& pairs() { return pairs_; }
  ReferredPairs& valid() { return valid_; }
  // Measures the reference's log-probabilities. Collective, as all that follow.
  void measure_reference(Trainer& trainer, ReferredPairs& pairs);

  bool begin_step(Trainer& trainer, int64_t step) override;
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override;
  Var evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
               Brackets& brackets) override;
  bool validates() const override { return valid_.batches != nullptr; }
  std::optional<Validation> validate(Trainer& trainer, FunctionRef<bool()> is_over) override;

 private:
  // What the loss of a pair takes from the others of its batch.
  struct Company {
    double kl = 0, token_weight = 0;
  };
  PairLoss pair_loss(const ReferredPairs& pairs, int64_t pair, std::span<const double> logps, const Company& c) const;
  double rule(int64_t step, int64_t first_row, std::span<const double> logps, std::span<double> dlogps) const;
  // Of `count` rows, of which pair_of says which pair they are. logps: theirs, which KTO asks for.
  Company company_of(const ReferredPairs& pairs, int64_t count, std::span<const double> logps,
                     FunctionRef<int64_t(int64_t row)> pair_of) const;
  // The log-probabilities of this rank's share of `count` rows, put together: [count, 2].
  // Nothing where is_over() says so.
  std::vector<double> measure(
      Trainer& trainer, int64_t count, bool uses_adapters, FunctionRef<void(int64_t first_row, Batch& batch)> fill,
      FunctionRef<bool()> is_over = [] { return false; });
  std::vector<double> measure_in_order(
      Trainer& trainer, const PairBatches& pairs, int64_t count, bool uses_adapters,
      FunctionRef<bool()> is_over = [] { return false; });

  const PreferenceConfig& config_;
  const TrainConfig& train_;
  Communicator& spread_;
  ReferredPairs pairs_, valid_;
  std::vector<double> measured_;  // of the last evaluation
  Company company_;               // of the step
};

// The part of a decoder's pass behind its blocks that PreferenceObjective's losses are: log-probabilities of the
// slot's sequences, of which a row of seq_len tokens has two, and what the rule makes of them.
Var answers_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, int64_t seq_len,
                 Communicator& spread, const Var& x, const SequenceRule& rule, float grad_scale, Brackets& brackets);

// Keeps a reference of a run in a file beside its other ones, so that it survives a restart.
void save_reference(const ReferredPairs& pairs, const std::string& path);
// Throws Error naming the file when it is of other pairs.
void load_reference(ReferredPairs& pairs, const std::string& path);

}  // namespace weft
