// Objectives: what they need before the first step.
#include "weft/train/objectives.h"

#include "weft/data/packed_rows.h"
#include "weft/train/classes_objective.h"
#include "weft/train/distill_objective.h"
#include "weft/train/policy/policy_objective.h"
#include "weft/train/preference_objective.h"

namespace weft {
namespace {

// Without adapters the reference is the model as training began, which a run that goes on no longer has.
void find_reference(const Recipe& recipe, const ObjectiveSources& s, Trainer& trainer, PreferenceObjective& objective,
                    ReferredPairs& pairs, const char* file) {
  if (!recipe.preference.needs_reference() || !pairs.batches) return;
  const std::string path = join_path(recipe.log.dir, file);
  const bool goes_on = trainer.next_step() > 0 && recipe.model.lora.rank == 0;
  if (goes_on) {
    if (!exists(FileSystem::real(), path))
      throw Error(
          "{} is missing, and the reference cannot be measured again after steps of training: start anew in "
          "another log.dir",
          path);
    return load_reference(pairs, path);
  }
  objective.measure_reference(trainer, pairs);
  if (s.saves_reference && trainer.mesh().world().rank() == 0) save_reference(pairs, path);
}

std::vector<int32_t> ends_of_answers(const Tokenizer& tokenizer, const ModelSource* start) {
  if (start) return stop_tokens(*start, tokenizer);
  const auto end = tokenizer.end_of_document();
  return end ? std::vector{*end} : std::vector<int32_t>{};
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

std::unique_ptr<BatchSource> batches_for(const Recipe& recipe, const Dataset& data) {
  if (recipe.policy.is_on()) return std::make_unique<PolicyBatches>(recipe, data.prompts);
  return batches_for(recipe, data.train);
}

std::unique_ptr<Objective> make_objective(const Recipe& recipe, const ObjectiveSources& s, Trainer& trainer) {
  if (recipe.policy.is_on()) {
    check(bool(s.make_answerer), "[rl] without a way to answer");
    PolicyObjective::Beside beside;
    if (has_reference_beside(recipe)) {
      check(s.start, "a reference without a model that training starts from");
      beside.reference =
          std::make_unique<ForwardModel>(trainer.context(), trainer.mesh(), s.start->config(), recipe.dtype());
      beside.reference->load(*s.start);
    }
    if (s.make_reward)
      beside.reward = s.make_reward(recipe.policy);
    else if (recipe.policy.reward == RewardKind::model)
      beside.reward_model = std::make_unique<RewardModel>(recipe, s.batches, *s.teacher, *s.data.tokenizer,
                                                          trainer.context(), trainer.mesh());
    else
      beside.reward = make_reward(recipe.policy);
    return std::make_unique<PolicyObjective>(
        recipe, dynamic_cast<PolicyBatches&>(s.batches), s.data.valid_prompts, *s.data.tokenizer,
        s.make_answerer(trainer, recipe, {ends_of_answers(*s.data.tokenizer, s.start), s.stop}), std::move(beside),
        trainer.mesh());
  }
  if (recipe.preference.method != PreferenceMethod::none) {
    auto objective = std::make_unique<PreferenceObjective>(
        recipe.preference, dynamic_cast<const PairBatches&>(s.batches), dynamic_cast<const PairBatches*>(s.valid),
        recipe.train, trainer.mesh().cp());
    trainer.set_objective(objective.get());  // which measures
    find_reference(recipe, s, trainer, *objective, objective->pairs(), "reference.f64");
    find_reference(recipe, s, trainer, *objective, objective->valid(), "reference_valid.f64");
    return objective;
  }
  if (!recipe.distill.teacher.empty())
    return std::make_unique<DistillObjective>(recipe, s.batches, *s.teacher, trainer);
  if (recipe.model.scores_texts()) return std::make_unique<ClassesObjective>();
  return nullptr;
}

}  // namespace weft
