// PreferenceObjective: pairs of answers, compared with each other and with what a reference model says of them.
#pragma once
#include <string>
#include <vector>

#include "weft/data/pair_batches.h"
#include "weft/parallel/sequence_loss.h"
#include "weft/train/trainer.h"

namespace weft {

// The reference is the trainer's model without its adapters, or, where it has none, as it is when it is measured.
// Batches and configuration outlive this.
class PreferenceObjective final : public Objective {
 public:
  PreferenceObjective(const PreferenceConfig& config, const PairBatches& batches, const TrainConfig& train)
      : config_(config), batches_(batches), train_(train) {}

  // Measures the reference's log-probabilities of every pair. Collective, as all that follow.
  void measure_reference(Trainer& trainer);
  // Of every pair both answers, in the order of the file; to be kept for a run that goes on with other weights.
  const std::vector<double>& reference() const { return reference_; }
  void set_reference(std::vector<double> reference) { reference_ = std::move(reference); }

  void begin_step(Trainer& trainer, int64_t step) override;
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override;
  Var evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
               Brackets& brackets) override;

 private:
  double rule(int64_t step, int64_t first_row, std::span<const double> logps, std::span<double> dlogps) const;
  Answer answer(int64_t pair, size_t half, double logp) const;
  // The log-probabilities of this rank's share of `count` rows, put together: [count, 2].
  std::vector<double> measure(Trainer& trainer, int64_t count, bool uses_adapters,
                              FunctionRef<void(int64_t first_row, Batch& batch)> fill);

  const PreferenceConfig& config_;
  const PairBatches& batches_;
  const TrainConfig& train_;
  std::vector<double> reference_;  // [pairs, 2]
  std::vector<double> measured_;   // of the last evaluation
  double kl_ = 0, token_weight_ = 0;
};

// The part of a decoder's pass behind its blocks that PreferenceObjective's losses are: log-probabilities of the
// slot's sequences, and what the rule makes of them.
Var answers_loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                 const SequenceRule& rule, float grad_scale, Brackets& brackets);

// Keeps the reference of a run in a file beside its other ones, so that it survives a restart.
void save_reference(const PreferenceObjective& objective, const std::string& path);
// Throws Error naming the file when it is of another number of pairs.
void load_reference(PreferenceObjective& objective, const std::string& path, int64_t pairs);

}  // namespace weft
