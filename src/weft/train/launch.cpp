// launch: data first, then ranks.
#include "weft/train/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "weft/comm/threads/run_ranks.h"
#include "weft/train/progress.h"

namespace weft {
namespace {

Dataset prepare(const Recipe& recipe) {
  ProgressLine line(STDERR_FILENO);
  FileSystem& fs = FileSystem::real();
  make_folders(fs, recipe.data.cache_dir);
  return open_dataset(fs,
                      {.train = recipe.data.train,
                       .valid = recipe.data.valid,
                       .valid_fraction = recipe.data.valid_fraction,
                       .tokenizer = recipe.data.tokenizer,
                       .cache_dir = recipe.data.cache_dir},
                      [&](int64_t done, int64_t total) {
                        const auto now = std::chrono::steady_clock::now().time_since_epoch();
                        line.show_bytes("tokenizing", done, total, std::chrono::duration<double>(now).count());
                      });
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

RunReport train(Recipe recipe, RunOptions options) {
  const int num_ranks = recipe.mesh.size();
  const Dataset dataset = prepare(recipe);
  set_vocab(recipe, dataset.tokenizer->vocab_size());
  options.threads = std::max(1, usable_cores() / num_ranks);
  RunReport report;
  run_ranks(num_ranks, [&](Communicator& world) {
    const RunReport mine = run_rank(recipe, dataset, world, options);
    if (world.rank() == 0) report = mine;
  });
  return report;
}

}  // namespace weft
