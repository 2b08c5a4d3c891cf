// Objectives: what they need before the first step.
#include "weft/train/objectives.h"

#include "weft/data/packed_rows.h"
#include "weft/train/distill_objective.h"
#include "weft/train/preference_objective.h"

namespace weft {
namespace {

// Without adapters the reference is the model as training began, which a run that goes on no longer has.
void find_reference(const Recipe& recipe, const PairBatches& batches, Trainer& trainer,
                    PreferenceObjective& objective) {
  if (!recipe.preference.needs_reference()) return;
  const std::string path = join_path(recipe.log.dir, "reference.f64");
  const bool goes_on = trainer.next_step() > 0 && recipe.model.lora.rank == 0;
  if (goes_on) {
    if (!exists(FileSystem::real(), path))
      throw Error(
          "{} is missing, and the reference cannot be measured again after steps of training: start anew in "
          "another log.dir",
          path);
    return load_reference(objective, path, batches.num_pairs());
  }
  objective.measure_reference(trainer);
  if (trainer.mesh().world().rank() == 0) save_reference(objective, path);
}

}  // namespace

std::unique_ptr<BatchSource> batches_for(const Recipe& recipe, TokenPart part) {
  const BatchOptions options{.seq_len = int32_t(recipe.train.seq_len),
                             .global_batch = int32_t(recipe.train.global_batch),
                             .seed = recipe.train.seed,
                             .documents = recipe.data.documents};
  if (recipe.preference.method != PreferenceMethod::none)
    return std::make_unique<PairBatches>(std::move(part), options);
  return make_batches(std::move(part), options);
}

std::unique_ptr<Objective> make_objective(const Recipe& recipe, const BatchSource& batches,
                                          const ModelSource* teacher, Trainer& trainer) {
  if (recipe.preference.method != PreferenceMethod::none) {
    const auto& pairs = dynamic_cast<const PairBatches&>(batches);
    auto objective = std::make_unique<PreferenceObjective>(recipe.preference, pairs, recipe.train);
    trainer.set_objective(objective.get());  // which measures
    find_reference(recipe, pairs, trainer, *objective);
    return objective;
  }
  if (!recipe.distill.teacher.empty()) return std::make_unique<DistillObjective>(recipe, batches, *teacher, trainer);
  return nullptr;
}

}  // namespace weft
