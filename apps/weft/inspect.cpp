// weft inspect: what a model, a checkpoint, a token file, a recipe or a trace holds.
#include <filesystem>

#include "command.h"
#include "inspect_model.h"
#include "recipe_vocab.h"
#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/data/token_file.h"
#include "weft/models/model_json.h"
#include "weft/pretrained/model_source.h"
#include "weft/train/memory_estimate.h"
#include "weft/train/recipe.h"
#include "weft/train/trace_ops.h"

namespace weft::app {
namespace {

struct InspectCommand {
  std::string path;
  Output output;
};

nlohmann::json tensor_list(const Checkpoint& checkpoint, std::string_view group) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const std::string& name : checkpoint.names(group)) {
    const std::optional<StoredTensor> t = checkpoint.find(group, name);
    tensors.push_back({{"name", name}, {"dtype", name_of(t->dtype)}, {"shape", t->shape.dims()}});
  }
  return tensors;
}

int64_t total_elements(const nlohmann::json& tensors) {
  int64_t sum = 0;
  for (const auto& t : tensors) {
    int64_t n = 1;
    for (const auto& dim : t["shape"]) n *= dim.get<int64_t>();
    sum += n;
  }
  return sum;
}

void inspect_checkpoint(const InspectCommand& o) {
  const std::string path = find_checkpoint(o.path);
  const CheckpointReport report = verify_checkpoint(path);
  if (!report.is_valid()) {
    o.output.json({{"kind", "checkpoint"}, {"path", path}, {"valid", false}, {"problems", report.problems}});
    if (!o.output.is_json()) o.output.text(report.to_text());
    throw Error("{} is damaged: use an older checkpoint", path);
  }
  const Checkpoint checkpoint = Checkpoint::open(path, Checkpoint::Check::sizes);
  const TrainingState state = checkpoint.state();
  const nlohmann::json tensors = tensor_list(checkpoint, kModelGroup);
  const int64_t num_params = total_elements(tensors);
  o.output.json({{"kind", "checkpoint"},
                 {"path", path},
                 {"valid", true},
                 {"step", checkpoint.step()},
                 {"tokens", state.tokens},
                 {"seed", state.seed},
                 {"num_params", num_params},
                 {"model", nlohmann::json::parse(checkpoint.read(kModelName))},
                 {"tensors", tensors}});
  if (o.output.is_json()) return;
  o.output.text(report.to_text());
  o.output.text(fmt::format("step {}, {} tokens seen, seed {}, {} parameters", checkpoint.step(), state.tokens,
                            state.seed, num_params));
  for (const auto& t : tensors)
    o.output.text(fmt::format("  {:<40} {:<5} {}", t["name"].get<std::string>(), t["dtype"].get<std::string>(),
                              t["shape"].dump()));
}

void inspect_tokens(const InspectCommand& o) {
  const TokenFile file(o.path);
  file.verify();
  const size_t num_documents = file.document_starts().size();
  o.output.json({{"kind", "tokens"},
                 {"path", o.path},
                 {"num_tokens", file.num_tokens()},
                 {"num_documents", num_documents},
                 {"vocab", file.vocab_size()},
                 {"source_bytes", file.source_bytes()},
                 {"skipped_files", file.skipped_files()}});
  if (!o.output.is_json())
    o.output.text(
        fmt::format("{} tokens of a vocabulary of {} in {} documents, from {} of text; {} binary files were "
                    "left out",
                    file.num_tokens(), file.vocab_size(), num_documents, human_bytes(uint64_t(file.source_bytes())),
                    file.skipped_files()));
}

// What the recipe's model is, and what each rank will need, before anything is allocated.
void inspect_recipe(const InspectCommand& o) {
  Toml toml = Toml::load(o.path);
  Recipe recipe = read_recipe(toml);
  settle_vocab(recipe);
  const std::vector<MemoryEstimate> ranks = estimate_memory(recipe);
  MemoryEstimate memory;
  nlohmann::json peaks = nlohmann::json::array(), states = nlohmann::json::array();
  for (const MemoryEstimate& rank : ranks) {
    memory.state_bytes = std::max(memory.state_bytes, rank.state_bytes);
    memory.peak_bytes = std::max(memory.peak_bytes, rank.peak_bytes);
    memory.nf4.weights += rank.nf4.weights, memory.nf4.bytes += rank.nf4.bytes;
    peaks.push_back(rank.peak_bytes), states.push_back(rank.state_bytes);
  }
  o.output.json({{"kind", "recipe"},
                 {"path", o.path},
                 {"num_params", recipe.model.num_params()},
                 {"flops_per_token", recipe.model.flops_per_token(recipe.train.seq_len)},
                 {"ranks", recipe.mesh.size()},
                 {"state_bytes", memory.state_bytes},
                 {"peak_bytes", memory.peak_bytes},
                 {"nf4_weights", memory.nf4.weights},
                 {"nf4_bytes", memory.nf4.bytes},
                 {"state_bytes_by_rank", states},
                 {"peak_bytes_by_rank", peaks}});
  if (o.output.is_json()) return;
  o.output.text(fmt::format("{} parameters, {:.3g} FLOPs a token", recipe.model.num_params(),
                            recipe.model.flops_per_token(recipe.train.seq_len)));
  o.output.text(fmt::format(
      "{} rank(s), each at most {} of weights, gradients and optimizer state, {} at the peak of a step",
      recipe.mesh.size(), human_bytes(uint64_t(memory.state_bytes)), human_bytes(uint64_t(memory.peak_bytes))));
  if (memory.nf4.weights > 0) o.output.text(fmt::format("on all ranks as NF4: {}", describe(memory.nf4)));
}

// Of the collectives of one group of ranks, in microseconds: how long they took, and how long ranks waited for them.
struct GroupTime {
  double total = 0, exposed = 0;   // of all
  double started = 0, waited = 0;  // of those that ran behind other work, as in the backward pass
  static double hidden(double total, double exposed) { return total > 0 ? std::max(0.0, 1 - exposed / total) : 1; }
};

void add_to_groups(const nlohmann::json& event, std::map<std::string, GroupTime>& groups) {
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object() || !args->contains("group") || !(*args)["group"].is_string()) return;
  GroupTime& group = groups[(*args)["group"].get<std::string>()];
  const double us = event.value("dur", 0.0);
  const bool is_wait = event.value("name", "") == TraceOps::kWaitName;
  const bool is_started = args->value("started", 0.0) != 0;
  if (!is_wait) group.total += us;
  if (is_wait || !is_started) group.exposed += us;
  if (is_wait) group.waited += us;
  if (is_started) group.started += us;
}

void inspect_trace(const InspectCommand& o) {
  constexpr uint64_t kMostBytes = uint64_t(1) << 30;
  const nlohmann::json trace = parse_json(read_file(o.path, kMostBytes), o.path, {.max_bytes = kMostBytes});
  if (!trace.is_array() && !(trace.is_object() && trace.contains("traceEvents")))
    throw UsageError("{} is no trace: it has no \"traceEvents\"; of a model name the folder", o.path);
  std::map<std::string, std::pair<int64_t, double>> by_name;
  std::map<std::string, GroupTime> groups;
  for (const auto& event : trace.contains("traceEvents") ? trace["traceEvents"] : trace) {
    if (!event.is_object() || event.value("ph", "") != "X") continue;
    const std::string name = event.value("name", "?");
    // What a host queued its device did, and has a span of that.
    if (event.value("cat", "") != name_of(TraceTrack::host) || name == TraceOps::kWaitName) {
      auto& [count, micros] = by_name[name];
      ++count, micros += event.value("dur", 0.0);
    }
    add_to_groups(event, groups);
  }
  nlohmann::json spans = nlohmann::json::array();
  for (const auto& [name, sum] : by_name) spans.push_back({{"name", name}, {"count", sum.first}, {"us", sum.second}});
  nlohmann::json communication = nlohmann::json::array();
  for (const auto& [name, time] : groups)
    communication.push_back({{"group", name},
                             {"us", time.total},
                             {"exposed_us", time.exposed},
                             {"hidden", GroupTime::hidden(time.total, time.exposed)},
                             {"started_us", time.started},
                             {"started_hidden", GroupTime::hidden(time.started, time.waited)}});
  o.output.json({{"kind", "trace"}, {"path", o.path}, {"spans", spans}, {"communication", communication}});
  if (o.output.is_json()) return;
  for (const auto& [name, time] : groups)
    o.output.text(fmt::format(
        "communication of {:<12} {:>12.1f} us, {:>12.1f} us of it waited for; behind other work {:>12.1f} us, "
        "{:.1f}% "
        "hidden",
        name, time.total, time.exposed, time.started, 100 * GroupTime::hidden(time.started, time.waited)));
  for (const auto& [name, sum] : by_name)
    o.output.text(fmt::format("{:<24} {:>8} times {:>12.1f} us", name, sum.first, sum.second));
}

void inspect(const InspectCommand& o) {
  if (is_saved_model(o.path)) return inspect_model(o.path, o.output);
  if (std::filesystem::is_directory(o.path)) return inspect_checkpoint(o);
  if (!exists(FileSystem::real(), o.path))
    throw UsageError(
        "{} does not exist: name a model's folder or file (.gguf, .safetensors, .bin), a checkpoint, a token file "
        "(.tok), a recipe (.toml) or a trace (.json)",
        o.path);
  if (o.path.ends_with(".tok")) return inspect_tokens(o);
  if (o.path.ends_with(".toml")) return inspect_recipe(o);
  if (o.path.ends_with(".json")) return inspect_trace(o);
  throw UsageError(
      "{} is none of what weft can show: a folder of a model or checkpoint, .gguf, .safetensors, .bin, .tok, .toml, "
      ".json",
      o.path);
}

}  // namespace

void add_inspect(CLI::App& program) {
  const auto o = std::make_shared<InspectCommand>();
  CLI::App* c = program.add_subcommand("inspect", "What a model, checkpoint, token file, recipe or trace holds");
  c->add_option("PATH", o->path, "The file or folder")->required();
  o->output.add_option(*c);
  c->footer("Example: weft inspect runs/cpp");
  c->callback([o] { inspect(*o); });
}

}  // namespace weft::app
