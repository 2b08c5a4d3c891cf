// Objective: what a step trains for, where it is not the cross-entropy of the next token alone.
#pragma once
#include "weft/base/function_ref.h"
#include "weft/models/decoder.h"
#include "weft/train/micro_batches.h"
#include "weft/train/policy/policy_figures.h"
#include "weft/train/validation.h"

namespace weft {

class Trainer;

class Objective {
 public:
  virtual ~Objective() = default;

  // Before the micro-batches of a step. Collective; false, on every rank: somebody asked to stop meanwhile, and there
  // is nothing to train on.
  virtual bool begin_step(Trainer&, int64_t /*step*/) { return true; }
  // The loss of a micro-batch, as Decoder::loss: a sum that the step divides by BatchSource::num_targets.
  virtual Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
                   Brackets& brackets) = 0;
  // The same of a batch that is only measured.
  virtual Var evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                       Brackets& brackets) {
    return part.loss(context, slot.pass, x, slot.batch.targets.data(), 0, brackets);
  }
  // Of what was evaluated since the last call, the share of targets that the model says, where that is counted.
  // Collective.
  virtual std::optional<double> accuracy(Trainer&) { return {}; }
  // Where it has validation data of its own, which are no text. Collective; every rank gets the same, and nothing
  // where is_over(), which is collective, too, has said so meanwhile.
  virtual bool validates() const { return false; }
  virtual std::optional<Validation> validate(Trainer&, FunctionRef<bool()> /*is_over*/) { return {}; }
  // Of the last step, where the model learns from answers of its own. Collective, as the above.
  virtual std::optional<PolicyFigures> figures(Trainer&) { return {}; }
};

}  // namespace weft
