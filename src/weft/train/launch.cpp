// launch: data first, then ranks.
#include "weft/train/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "weft/comm/mpi/mpi.h"
#include "weft/comm/run_world.h"
#include "weft/pretrained/tokenizer_path.h"
#include "weft/train/progress.h"

namespace weft {

Dataset open_data(const Recipe& recipe) {
  ProgressLine line(STDERR_FILENO);
  FileSystem& fs = FileSystem::real();
  make_folders(fs, recipe.data.cache_dir);
  const bool is_gguf = recipe.data.tokenizer.ends_with(".gguf");  // which data/ knows nothing of
  return open_dataset(
      fs,
      {.train = recipe.data.train,
       .valid = recipe.data.valid,
       .valid_fraction = recipe.data.valid_fraction,
       .tokenizer = recipe.data.tokenizer,
       .cache_dir = recipe.data.cache_dir,
       .opened = is_gguf ? open_tokenizer_path(fs, recipe.data.tokenizer, "data.tokenizer") : nullptr},
      [&](int64_t done, int64_t total) {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        line.show_bytes("tokenizing", done, total, std::chrono::duration<double>(now).count());
      });
}

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

// A rank's share of the machine; where the launcher has bound each rank to cores, all of those.
static int threads_of_a_rank(const Recipe& recipe) {
  const int cores = usable_cores();
  if (!launched_by_mpi()) return std::max(1, cores / recipe.mesh.size());
  const bool is_bound = cores < int(std::thread::hardware_concurrency());
  return is_bound ? cores : std::max(1, cores / mpi_ranks_here());
}

RunReport train(Recipe recipe, RunOptions options) {
  options.threads = threads_of_a_rank(recipe);
  RunReport report;
  // Ranks that are threads share one data set; ranks that are processes each open what the first one has built.
  std::optional<Dataset> shared;
  if (!launched_by_mpi()) {
    shared = open_data(recipe);
    set_vocab(recipe, shared->tokenizer->vocab_size());
  }
  const auto run = [&](Communicator& world) {
    if (shared) {
      const RunReport mine = run_rank(recipe, *shared, world, options);
      if (world.rank() == 0) report = mine;
      return;
    }
    {
      const Patience patience(world);
      if (world.rank() == 0) shared = open_data(recipe);
      world.barrier();
      if (world.rank() != 0) shared = open_data(recipe);
    }
    set_vocab(recipe, shared->tokenizer->vocab_size());
    report = run_rank(recipe, *shared, world, options);
  };
  run_world(recipe.mesh.size(), run, {.timeout = std::chrono::seconds(recipe.mesh.timeout_s)});
  return report;
}

}  // namespace weft
