// ClassesObjective: the cross-entropy of labels, and their counts.
#include "weft/train/classes_objective.h"

#include "weft/train/trainer.h"

namespace weft {

Var ClassesObjective::loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                           float grad_scale, Brackets& brackets) {
  return part.loss(context, slot.pass, x, slot.batch.targets.data(), grad_scale, brackets);
}

Var ClassesObjective::evaluate(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                               Brackets& brackets) {
  return part.result(context, slot.pass, x, brackets,
                     [&](const Partition& partition, const HeadView& head, const Var& hidden) {
                       return measured_classes(partition.tensor, head, slot.batch.targets.data(), hidden, counted_);
                     });
}

std::optional<double> ClassesObjective::accuracy(Trainer& trainer) {
  Allocator memory;  // not part of the training's figures
  const Tensor sums = memory.empty(DType::f64, {2});
  double* const all = sums.data<double>();
  const RightTargets mine = trainer.counts_loss() ? counted_ : RightTargets();
  all[0] = double(mine.right), all[1] = double(mine.all);
  trainer.mesh().world().all_reduce(sums);
  counted_ = {};
  if (all[1] == 0) return {};
  return all[0] / all[1];
}

}  // namespace weft
