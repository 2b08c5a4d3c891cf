// PreferenceObjective: pairs of answers, compared with each other and with what a reference model says of them.
#pragma once
#include <string>
#include <vector>

#include "weft/data/pair_batches.h"
#include "weft/train/sequence_parts.h"
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
  double rule(int64_t first_row, int64_t num_rows, std::span<const double> logps, std::span<double> dlogps) const;
  // Of some pairs. logps: theirs, [pairs, 2], which KTO asks for.
  Company company_of(const ReferredPairs& pairs, std::span<const PairBatches::Item> items,
                     std::span<const double> logps) const;
  Var sequences_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const PairBatches::Rows& rows,
                     int64_t first_row, const Var& x, const SequenceRule& rule, float grad_scale, Brackets& brackets);
  int64_t rows_in(const MicroBatches::Slot& slot) const {
    return slot.pass.num_tokens * spread_.size() / train_.seq_len;
  }
  // The log-probabilities of rows of pairs, of which each rank computes a share: [items, 2]. Nothing where is_over()
  // says so.
  std::vector<double> measure(
      Trainer& trainer, const PairBatches& pairs, const PairBatches::Rows& rows, bool uses_adapters,
      FunctionRef<bool()> is_over = [] { return false; });

  const PreferenceConfig& config_;
  const TrainConfig& train_;
  Communicator& spread_;
  ReferredPairs pairs_, valid_;
  // Of the step.
  std::shared_ptr<const PairBatches::Rows> rows_;
  Company company_;
  // Of an evaluation: this rank's rows, and what they were measured at, sequence by sequence.
  const PairBatches::Rows* evaluated_ = nullptr;
  int64_t first_evaluated_ = 0;
  std::vector<double> measured_;
};

// The part of a decoder's pass behind its blocks that PreferenceObjective's losses are: log-probabilities of the
// slot's sequences, which are in order, and what the rule makes of them.
Var answers_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, int64_t seq_len,
                 std::span<const SequenceAt> sequences, Communicator& spread, const Var& x, const SequenceRule& rule,
                 float grad_scale, Brackets& brackets);

// Keeps a reference of a run in a file beside its other ones, so that it survives a restart.
void save_reference(const ReferredPairs& pairs, const std::string& path);
// Throws Error naming the file when it is of other pairs.
void load_reference(ReferredPairs& pairs, const std::string& path);

}  // namespace weft
