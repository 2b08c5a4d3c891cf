// SavedRun: names and files of a training checkpoint.
#include "weft/train/saved_run.h"

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "weft/base/file.h"
#include "weft/models/model_json.h"
#include "weft/parallel/data/near.h"
#include "weft/train/host_visit.h"
#include "weft/train/tensor_exchange.h"
#include "weft/train/weights.h"

namespace weft {
namespace {

constexpr const char* kUpdates = "optimizer_updates";
constexpr const char* kData = "data";
constexpr const char *kSeqLen = "train.seq_len", *kDocuments = "data.documents";
// Beside the states of the optimizer: what weights were quantised with, so that they become the same codes again.
constexpr const char* kNf4Scales = "nf4_scales";

const std::string* find_extra(const TrainingState& state, const char* key) {
  const auto found = state.extra.find(key);
  return found == state.extra.end() ? nullptr : &found->second;
}

// Steps that were skipped are no updates, so their number is kept beside the step.
int64_t updates_of(const TrainingState& state) {
  int64_t updates = state.step;
  if (const std::string* text = find_extra(state, kUpdates))
    std::from_chars(text->data(), text->data() + text->size(), updates);
  return updates;
}

std::string name_of(bool x) { return x ? "true" : "false"; }

[[noreturn]] void refuse(const std::string& path, std::string_view key, std::string_view was, std::string_view is) {
  throw UsageError("{} was trained with {} = {}, the recipe says {}: write the same, or another log.dir", path, key,
                   was, is);
}

// Checkpoints of older versions do not say all.
void check_same(const TrainingState& state, const std::string& path, const char* key, const std::string& is) {
  if (const std::string* was = find_extra(state, key); was && *was != is) refuse(path, key, *was, is);
}

// Tensors tell of shapes alone. What only says how a model is trained, or how far it may read, may change.
void check_same_model(const Checkpoint& checkpoint, const ModelConfig& model) {
  const std::string source = join_path(checkpoint.path(), kModelName);
  const auto fields_of = [](const ModelConfig& config) {
    nlohmann::json fields = nlohmann::json::parse(to_json(config));
    if (fields.contains("lora")) {
      for (const auto& [key, value] : fields["lora"].items())
        if (key != "dropout") fields["lora." + key] = value;
      fields.erase("lora");
    }
    for (const char* free : {"context", "mtp_loss", "capacity_factor", "aux_loss", "z_loss"}) fields.erase(free);
    return fields;
  };
  const nlohmann::json was = fields_of(parse_model_json(checkpoint.read(kModelName), source)),
                       is = fields_of(parse_model_json(to_json(model), "the recipe"));
  const auto text_of = [](const nlohmann::json& fields, const std::string& key) {
    return fields.contains(key) ? fields[key].dump() : "nothing";
  };
  const auto compare = [&](const std::string& key) {
    if (text_of(was, key) != text_of(is, key))
      refuse(checkpoint.path(), key.starts_with("lora.") ? key : "model." + key, text_of(was, key), text_of(is, key));
  };
  // First those from which others follow where a recipe does not write them.
  for (const char* key : {"family", "hidden", "heads", "lora.rank"}) compare(key);
  for (const nlohmann::json* fields : {&was, &is})
    for (const auto& [key, value] : fields->items()) compare(key);
}

// The biases of all routers, whatever this rank has of them.
std::vector<WholeTensors::Info> router_biases_of(const ModelConfig& config) {
  Decoder whole(config);  // its shapes only
  std::vector<WholeTensors::Info> all;
  for (const RouterBias* b : whole.router_biases()) all.push_back({b->bias.name, b->bias.shape});
  return all;
}

}  // namespace

SavedRun::SavedRun(Trainer& trainer, const Recipe& recipe, const Tokenizer& tokenizer, std::string data, Texts others)
    : trainer_(trainer),
      recipe_(recipe),
      tokenizer_(tokenizer),
      data_(std::move(data)),
      others_(std::move(others)),
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
      throw UsageError(
          "{} has a tensor {}, which the recipe's model and optimizer have not: write the recipe that it is of",
          checkpoint.path(), name);
  for (const Entry& e : entries) {
    const std::optional<StoredTensor> t = checkpoint.find(group, e.name);
    if (!t)
      throw UsageError(
          "{} has no tensor {}, which the recipe's model or optimizer has: write the recipe that it is of",
          checkpoint.path(), e.name);
    if (t->shape != e.shape || t->dtype != DType::f32)
      throw UsageError("{}: {} is {} {}, the recipe's model needs f32 {}", checkpoint.path(), e.name,
                       name_of(t->dtype), t->shape, e.shape);
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
    throw UsageError("{} has no {}: it was trained with another lora.quantize", checkpoint.path(), name);
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
                            .extra = {{kUpdates, std::to_string(trainer_.optimizer().num_updates())},
                                      {kData, data_},
                                      {kSeqLen, std::to_string(recipe_.train.seq_len)},
                                      {kDocuments, name_of(recipe_.data.documents)}}};
  snapshot.texts = {{std::string(kModelName), to_json(recipe_.model)},
                    {std::string(kTokenizerName), tokenizer_.to_json()},
                    {std::string(kRecipeName), recipe_.text},
                    {std::string(kStateName), to_json_text(state)}};
  snapshot.texts.insert(snapshot.texts.end(), others_.begin(), others_.end());
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
  check_same(state, checkpoint.path(), kSeqLen, std::to_string(recipe_.train.seq_len));
  check_same(state, checkpoint.path(), kDocuments, name_of(recipe_.data.documents));
  if (const std::string* data = find_extra(state, kData); data && !data->empty() && !data_.empty() && *data != data_)
    throw UsageError(
        "{} was trained on other data than data.train and data.valid_fraction now give: name the same data, or "
        "another "
        "log.dir, whose run may begin from it with model.path",
        checkpoint.path());
  check_same_model(checkpoint, recipe_.model);
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
