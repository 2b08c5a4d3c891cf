// DistillObjective: a teacher on the same mesh reads every micro-batch before the student does.
#pragma once
#include <vector>

#include "weft/data/batch_source.h"
#include "weft/pretrained/forward_model.h"
#include "weft/train/trainer.h"

namespace weft {

// The teacher is cut along tp, pp, cp and ep as the student is; ranks along dp hold it each. Of a step, the residual
// stream before the teacher's head is kept for every micro-batch. Everything outlives this.
class DistillObjective final : public Objective {
 public:
  // Throws UsageError when the teacher has another vocabulary or cannot be cut so. Collective.
  DistillObjective(const Recipe& recipe, const BatchSource& batches, const ModelSource& teacher, Trainer& trainer);
  // Memory as that of the one before, without values: for plans, over meta memory.
  DistillObjective(const Recipe& recipe, const BatchSource& batches, const ModelConfig& teacher, Trainer& trainer);

  bool begin_step(Trainer& trainer, int64_t step) override;
  Var loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x, float grad_scale,
           Brackets& brackets) override;

 private:
  const Recipe& recipe_;
  MicroBatches read_;  // as the student's are
  ForwardModel teacher_;
  std::vector<ForwardModel::BeforeHead> views_;  // by micro-batch
};

}  // namespace weft
