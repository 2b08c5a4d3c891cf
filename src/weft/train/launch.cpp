// launch: data first, then ranks.
#include "weft/train/launch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "weft/base/json.h"
#include "weft/base/machine.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/run_world.h"
#include "weft/pretrained/peft.h"
#include "weft/pretrained/tokenizer_path.h"
#include "weft/train/progress.h"
#include "weft/train/run_lock.h"

namespace weft {

namespace {

// Null: data/ opens it itself.
std::shared_ptr<const Tokenizer> tokenizer_of(const DataConfig& data, const ModelSource* start) {
  if (data.tokenizer == kTokenizerOfModel && start) return start->tokenizer();
  const bool is_gguf = data.tokenizer.ends_with(".gguf");  // which data/ knows nothing of
  return is_gguf ? open_tokenizer_path(FileSystem::real(), data.tokenizer, "data.tokenizer") : nullptr;
}

// The file that the recipe names, or the model's.
ChatTemplate::Text chat_template_of(const Recipe& recipe, const ModelSource* start) {
  FileSystem& fs = FileSystem::real();
  if (const std::string& named = recipe.data.chat_template; !named.empty()) {
    if (!exists(fs, named)) throw UsageError("data.chat_template = \"{}\": there is no such file", named);
    return {read_file(named, ChatTemplate::kMostBytes), named};
  }
  const auto found = start ? start->chat_template() : std::nullopt;
  return found.value_or(ChatTemplate::Text());
}

ExampleKind kind_of(const Recipe& recipe) {
  if (recipe.policy.is_on()) return ExampleKind::prompts;
  switch (recipe.preference.method) {
    case PreferenceMethod::none: break;
    case PreferenceMethod::kto: return ExampleKind::labelled;
    case PreferenceMethod::dpo:
    case PreferenceMethod::orpo: return ExampleKind::pairs;
    case PreferenceMethod::reward: return ExampleKind::scored_pairs;
  }
  return recipe.model.scores_texts() ? ExampleKind::classes : ExampleKind::answers;
}

}  // namespace

Dataset open_data(const Recipe& recipe, const ModelSource* start) {
  ProgressLine line(STDERR_FILENO);
  FileSystem& fs = FileSystem::real();
  make_folders(fs, recipe.data.cache_dir);
  const ChatTemplate::Text chat = chat_template_of(recipe, start);
  return open_dataset(fs,
                      {.train = recipe.data.train,
                       .valid = recipe.data.valid,
                       .valid_fraction = recipe.data.valid_fraction,
                       .tokenizer = recipe.data.tokenizer,
                       .cache_dir = recipe.data.cache_dir,
                       .opened = tokenizer_of(recipe.data, start),
                       .format = recipe.data.format,
                       .chat_template = chat.text,
                       .chat_source = chat.source,
                       .kind = kind_of(recipe),
                       .labels = recipe.model.labels},
                      [&](int64_t done, int64_t total) {
                        const auto now = std::chrono::steady_clock::now().time_since_epoch();
                        line.show_bytes("tokenizing", done, total, std::chrono::duration<double>(now).count());
                      });
}

int threads_of_a_rank(int num_ranks) {
  const int cores = usable_cores();
  if (!launched_by_mpi()) return std::max(1, cores / num_ranks);
  const bool is_bound = cores < int(std::thread::hardware_concurrency());
  return is_bound ? cores : std::max(1, cores / mpi_ranks_here());
}

RunReport train(Recipe recipe, RunOptions options) {
  options.threads = threads_of_a_rank(recipe.mesh.size());
  RunReport report;
  // Ranks that are threads share one data set and one opened model; ranks that are processes each open what the first
  // one has built and checked.
  std::optional<Dataset> shared;
  std::unique_ptr<ModelSource> start, teacher;
  const auto open = [&](Checkpoint::Check check) {
    if (!recipe.model_path.empty()) start = open_model(recipe.model_path, check, with_mtp_as(recipe.model));
    if (!recipe.lora_path.empty()) start = open_adapted(std::move(start), recipe.lora_path);
    options.start = start.get();
    if (const std::string& path = path_beside(recipe); !path.empty()) teacher = open_model(path, check);
    options.teacher = teacher.get();
    shared = open_data(recipe, options.start);
    set_vocab(recipe, shared->tokenizer->vocab_size());
    options.use = use_after_training(options.start, *shared->tokenizer, chat_template_of(recipe, options.start));
  };
  std::vector<LockFile> locks;  // to the end of the run
  const auto open_and_check = [&] {
    locks = lock_run(recipe.log.dir, recipe.checkpoint.dir);
    open(Checkpoint::Check::all_bytes);
    if (options.check) options.check(recipe);
  };
  if (!launched_by_mpi()) open_and_check();
  const auto run = [&](Communicator& world) {
    if (!launched_by_mpi()) {
      const RunReport mine = run_rank(recipe, *shared, world, options);
      if (world.rank() == 0) report = mine;
      return;
    }
    {
      const Patience patience(world);
      if (world.rank() == 0) open_and_check();
      world.barrier();
      if (world.rank() != 0) open(Checkpoint::Check::sizes);
    }
    report = run_rank(recipe, *shared, world, options);
  };
  run_world(recipe.mesh.size(), run, {.timeout = std::chrono::seconds(recipe.mesh.timeout_s)});
  return report;
}

}  // namespace weft
