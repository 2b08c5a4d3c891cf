// SavedRun: names and files of a training checkpoint.
#include "weft/train/saved_run.h"

#include <charconv>

#include "weft/models/model_json.h"

namespace weft {
namespace {

constexpr const char* kUpdates = "optimizer_updates";

// Steps that were skipped are no updates, so their number is kept beside the step.
int64_t updates_of(const TrainingState& state) {
  const auto found = state.extra.find(kUpdates);
  int64_t updates = state.step;
  if (found != state.extra.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), updates);
  return updates;
}

}  // namespace

SavedRun::SavedRun(Trainer& trainer, const Recipe& recipe, const Tokenizer& tokenizer)
    : trainer_(trainer), recipe_(recipe), tokenizer_(tokenizer) {}

std::vector<NamedTensor> SavedRun::weights() const {
  std::vector<NamedTensor> tensors;
  for (const AdamW::State& s : trainer_.optimizer().states()) tensors.push_back({s.param->name, s.master});
  return tensors;
}

std::vector<NamedTensor> SavedRun::moments() const {
  std::vector<NamedTensor> tensors;
  for (const AdamW::State& s : trainer_.optimizer().states()) {
    tensors.push_back({"m." + s.param->name, s.m});
    tensors.push_back({"v." + s.param->name, s.v});
  }
  return tensors;
}

std::string SavedRun::save(CheckpointStore& store, int64_t tokens_seen) {
  const std::vector<NamedTensor> w = weights(), m = moments();
  CheckpointWriter writer =
      store.begin(trainer_.next_step(), CheckpointStore::bytes_of(w) + CheckpointStore::bytes_of(m));
  writer.add_tensors("model.safetensors", w);
  writer.add_tensors("optimizer.safetensors", m);
  writer.add_file(std::string(kModelName), to_json(recipe_.model));
  writer.add_file(std::string(kTokenizerName), tokenizer_.to_json());
  writer.add_file(std::string(kRecipeName), recipe_.text);
  writer.add_state({.step = trainer_.next_step(),
                    .tokens = tokens_seen,
                    .seed = recipe_.train.seed,
                    .data_cursor = trainer_.next_step() * recipe_.train.global_batch,
                    .loss_scale = trainer_.loss_scaler().is_on() ? trainer_.loss_scaler().scale() : 0,
                    .loss_scale_good_steps = trainer_.loss_scaler().good_steps(),
                    .config_hash = {},
                    .world = {{"dp", recipe_.mesh.dp}},
                    .extra = {{kUpdates, std::to_string(trainer_.optimizer().num_updates())}}});
  return writer.commit();
}

TrainingState SavedRun::load(const Checkpoint& checkpoint) {
  const TrainingState state = checkpoint.state();
  if (state.seed != recipe_.train.seed)
    throw UsageError(
        "{} was trained with train.seed = {}, the recipe says {}: write the same seed, or another log.dir",
        checkpoint.path(), state.seed, recipe_.train.seed);
  if (state.step > 0 && state.data_cursor != state.step * recipe_.train.global_batch)
    throw UsageError(
        "{} was trained with train.global_batch = {}, the recipe says {}: write the same, or another "
        "log.dir",
        checkpoint.path(), state.data_cursor / state.step, recipe_.train.global_batch);
  if (checkpoint.read(kTokenizerName) != tokenizer_.to_json())
    throw UsageError(
        "{} was trained with another tokenizer than data.tokenizer now gives: name the same data, or "
        "another log.dir",
        checkpoint.path());
  const std::vector<NamedTensor> w = weights(), m = moments();
  checkpoint.load(kModelGroup, w);
  checkpoint.load(kOptimizerGroup, m);
  trainer_.optimizer().masters_changed();
  trainer_.optimizer().set_num_updates(updates_of(state));
  trainer_.loss_scaler().restore(state.loss_scale, state.loss_scale_good_steps);
  trainer_.set_next_step(state.step);
  return state;
}

}  // namespace weft
