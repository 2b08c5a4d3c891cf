// SavedRun: names and files of a training checkpoint.
#include "weft/train/saved_run.h"

#include <charconv>
#include <cstring>
#include <unordered_set>

#include "weft/models/model_json.h"
#include "weft/parallel/data/near.h"
#include "weft/train/host_visit.h"
#include "weft/train/tensor_exchange.h"
#include "weft/train/weights.h"

namespace weft {
namespace {

constexpr const char* kUpdates = "optimizer_updates";
// Beside the states of the optimizer: what weights were quantised with, so that they become the same codes again.
constexpr const char* kNf4Scales = "nf4_scales";

// Steps that were skipped are no updates, so their number is kept beside the step.
int64_t updates_of(const TrainingState& state) {
  const auto found = state.extra.find(kUpdates);
  int64_t updates = state.step;
  if (found != state.extra.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), updates);
  return updates;
}

// The biases of all routers, whatever this rank has of them.
std::vector<WholeTensors::Info> router_biases_of(const ModelConfig& config) {
  Decoder whole(config);  // its shapes only
  std::vector<WholeTensors::Info> all;
  for (const RouterBias* b : whole.router_biases()) all.push_back({b->bias.name, b->bias.shape});
  return all;
}

}  // namespace

SavedRun::SavedRun(Trainer& trainer, const Recipe& recipe, const Tokenizer& tokenizer)
    : trainer_(trainer),
      recipe_(recipe),
      tokenizer_(tokenizer),
      whole_(recipe, trainer.mesh(), trainer.optimizer().owned()),
      weights_(all_weights(trainer)),
      biases_(trainer.router_biases()) {}

std::vector<SavedRun::Entry> SavedRun::weights() {
  std::vector<Entry> entries;
  for (const auto& info : whole_.all()) entries.push_back({info.name, info.shape, info.name, "", weights_});
  for (const auto& info : router_biases_of(recipe_.model))
    entries.push_back({info.name, info.shape, info.name, "", biases_});
  return entries;
}

std::vector<SavedRun::Entry> SavedRun::optimizer_states() {
  std::vector<Entry> entries;
  for (const auto& info : whole_.all()) {
    if (info.is_nf4)
      entries.push_back({fmt::format("{}.{}", kNf4Scales, info.name),
                         {nf4::num_groups(info.shape.numel()) + 1},
                         info.name,
                         kNf4Scales,
                         weights_});
    if (!info.is_trained) continue;
    for (const Optimizer::State& s : trainer_.optimizer().states_of(info.name, info.shape))
      entries.push_back({s.name + "." + info.name, s.shape, info.name, s.name, {}});
  }
  return entries;
}

void SavedRun::visit(const Entry& e, bool is_written, Optimizer::VisitState visit) const {
  Stream& stream = trainer_.context().stream;
  if (e.state == kNf4Scales) return visit_nf4_scales(stream, e.owned, e.param, visit);
  if (!e.state.empty())
    return trainer_.optimizer().visit_state(e.param, e.state, is_written, HostVisit{stream, is_written, visit});
  visit_weight(trainer_.context(), e.owned, e.param, is_written, visit);
}

// One file for each rank that writes tensors of the group, in the order of the tensors.
void SavedRun::take_tensors(std::string_view group, const std::vector<Entry>& entries, RunSnapshot& snapshot) const {
  Communicator& world = trainer_.mesh().world();
  std::vector<uint64_t> bytes;
  for (const Entry& e : entries) bytes.push_back(uint64_t(e.shape.numel()) * sizeof(float));
  const std::vector<int> writers = spread(bytes, world.size());
  RunSnapshot::File file{.name = world.size() == 1 ? fmt::format("{}.safetensors", group)
                                                   : fmt::format("{}-{:05}.safetensors", group, world.rank()),
                         .tensors = {}};
  TensorExchange exchange(world);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = entries[i];
    snapshot.all_bytes += bytes[i];
    Tensor whole;
    if (writers[i] == world.rank()) {
      whole = snapshot.memory->empty(DType::f32, e.shape);
      file.tensors.push_back({e.name, whole});
    }
    exchange.add(writers[i], whole, e.shape.numel(), [&](auto&& take) { visit(e, false, take); });
  }
  exchange.finish();
  if (!file.tensors.empty()) snapshot.tensor_files.push_back(std::move(file));
}

void SavedRun::read(const Checkpoint& checkpoint, std::string_view group, const std::vector<Entry>& entries) const {
  std::unordered_set<std::string_view> needed;
  for (const Entry& e : entries) needed.insert(e.name);
  for (const std::string& name : checkpoint.names(group))
    if (!needed.contains(name))
      throw Error(
          "{} has a tensor {}, which the recipe's model and optimizer have not: write the recipe that it is of",
          checkpoint.path(), name);
  for (const Entry& e : entries) {
    const std::optional<StoredTensor> t = checkpoint.find(group, e.name);
    if (!t)
      throw Error("{} has no tensor {}, which the recipe's model or optimizer has: write the recipe that it is of",
                  checkpoint.path(), e.name);
    if (t->shape != e.shape || t->dtype != DType::f32)
      throw Error("{}: {} is {} {}, the recipe's model needs f32 {}", checkpoint.path(), e.name, name_of(t->dtype),
                  t->shape, e.shape);
    // The file's bytes need not be aligned.
    std::vector<float> values(size_t(t->shape.numel()));
    std::memcpy(values.data(), t->bytes.data(), t->bytes.size());
    if (e.state == kNf4Scales) continue;  // taken with the weight
    if (e.state.empty() && is_held_as_nf4(e.owned, e.param))
      read_nf4(checkpoint, e, values);
    else
      WholeTensors::scatter(values.data(), [&](auto&& give) { visit(e, true, give); });
  }
}

void SavedRun::read_nf4(const Checkpoint& checkpoint, const Entry& e, std::span<const float> values) const {
  const std::string name = fmt::format("{}.{}", kNf4Scales, e.name);
  const std::optional<StoredTensor> stored = checkpoint.find(kOptimizerGroup, name);
  std::vector<float> scales(size_t(nf4::num_groups(e.shape.numel()) + 1));
  if (!stored || stored->bytes.size() != scales.size() * sizeof(float))
    throw Error("{} has no {}: it was trained with another lora.quantize", checkpoint.path(), name);
  std::memcpy(scales.data(), stored->bytes.data(), stored->bytes.size());
  const auto whole = [&](int64_t first, std::span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
  };
  write_nf4(trainer_.context(), e.owned, e.param, whole, scales);
}

RunSnapshot SavedRun::take(int64_t tokens_seen) {
  const NearInTurn in_turn(weights_);
  RunSnapshot snapshot;
  snapshot.step = trainer_.next_step();
  take_tensors(kModelGroup, weights(), snapshot);
  take_tensors(kOptimizerGroup, optimizer_states(), snapshot);
  if (trainer_.mesh().world().rank() == 0) add_texts(tokens_seen, snapshot);
  return snapshot;
}

void SavedRun::add_texts(int64_t tokens_seen, RunSnapshot& snapshot) const {
  const MeshShape& m = recipe_.mesh.shape;
  const LossScaler& scaler = trainer_.loss_scaler();
  const TrainingState state{.step = trainer_.next_step(),
                            .tokens = tokens_seen,
                            .seed = recipe_.train.seed,
                            .data_cursor = trainer_.next_step() * recipe_.train.global_batch,
                            .loss_scale = scaler.is_on() ? scaler.scale() : 0,
                            .loss_scale_good_steps = scaler.good_steps(),
                            .config_hash = {},
                            .world = {{"dp", m.dp()}, {"tp", m.tp}, {"pp", m.pp}, {"cp", m.cp}, {"ep", m.ep}},
                            .extra = {{kUpdates, std::to_string(trainer_.optimizer().num_updates())}}};
  snapshot.texts = {{std::string(kModelName), to_json(recipe_.model)},
                    {std::string(kTokenizerName), tokenizer_.to_json()},
                    {std::string(kRecipeName), recipe_.text},
                    {std::string(kStateName), to_json_text(state)}};
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
  {
    const NearInTurn in_turn(weights_);
    read(checkpoint, kModelGroup, weights());
    read(checkpoint, kOptimizerGroup, optimizer_states());
  }
  trainer_.weights_changed();
  trainer_.optimizer().set_num_updates(updates_of(state));
  trainer_.loss_scaler().restore(state.loss_scale, state.loss_scale_good_steps);
  trainer_.set_next_step(state.step);
  return state;
}

}  // namespace weft
