// DistillObjective: the teacher's part of a step.
#include "weft/train/distill_objective.h"

#include "weft/parallel/distill_loss.h"

namespace weft {
namespace {

void check_teacher(const Recipe& recipe, const ModelConfig& teacher) {
  require_writing(teacher, fmt::format("distill.teacher = \"{}\"", recipe.distill.teacher));
  if (teacher.vocab != recipe.model.vocab)
    throw UsageError("distill.teacher = \"{}\" has {} tokens, the model {}: they must speak the same ones",
                     recipe.distill.teacher, teacher.vocab, recipe.model.vocab);
  if (teacher.context < recipe.train.seq_len)
    throw UsageError("distill.teacher = \"{}\" reads {} tokens at once: write at most that as train.seq_len",
                     recipe.distill.teacher, teacher.context);
}

}  // namespace

DistillObjective::DistillObjective(const Recipe& recipe, const BatchSource& batches, const ModelSource& teacher,
                                   Trainer& trainer)
    : recipe_(recipe),
      read_(recipe, trainer.mesh(), batches, 1),
      teacher_(trainer.context(), trainer.mesh(), teacher.config(), recipe.dtype()),
      views_(size_t(recipe.train.accumulation)) {
  check_teacher(recipe, teacher.config());
  teacher_.load(teacher);
}

DistillObjective::DistillObjective(const Recipe& recipe, const BatchSource& batches, const ModelConfig& teacher,
                                   Trainer& trainer)
    : recipe_(recipe),
      read_(recipe, trainer.mesh(), batches, 1),
      teacher_(trainer.context(), trainer.mesh(), teacher, nullptr, recipe.dtype(), {}),
      views_(size_t(recipe.train.accumulation)) {
  check_teacher(recipe, teacher);
}

bool DistillObjective::begin_step(Trainer&, int64_t step) {
  for (int m = 0; m < int(recipe_.train.accumulation); ++m) {
    Pass pass = read_.get(step, m).pass;
    pass.is_training = false;
    views_[size_t(m)] = teacher_.before_head(pass);
    read_.release(m);
  }
  return true;
}

Var DistillObjective::loss(Context& context, Decoder& part, const MicroBatches::Slot& slot, const Var& x,
                           float grad_scale, Brackets& brackets) {
  const ForwardModel::BeforeHead& view = views_[size_t(slot.micro_batch)];
  const DistillMix mix{float(recipe_.distill.alpha), float(recipe_.distill.temperature)};
  return part.result(context, slot.pass, x, brackets,
                     [&](const Partition& partition, const HeadView& head, const Var& hidden) {
                       return distill_loss(partition.tensor, head, slot.batch.targets.data(),
                                           {view.head, view.hidden}, mix, grad_scale, hidden);
                     });
}

}  // namespace weft
