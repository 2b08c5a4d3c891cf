// ClassesObjective: texts are of classes; what is measured of them is also how often the model says the right one.
#pragma once
#include "weft/parallel/score_loss.h"
#include "weft/train/objective.h"

namespace weft {

class ClassesObjective final : public Objective {
 public:
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override;
  Var evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
               Brackets& brackets) override;
  std::optional<double> accuracy(Trainer& trainer) override;

 private:
  RightTargets counted_;  // of this rank's tokens, since accuracy()
};

}  // namespace weft
