// train_check: one rank of each stage, run over meta memory.
#include "train_check.h"

#include <optional>

#include "rank_resources.h"
#include "weft/base/machine.h"
#include "weft/base/units.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/plan/machine_ranks.h"
#include "weft/plan/recipe_text.h"
#include "weft/plan/round_plan.h"
#include "weft/plan/search.h"
#include "weft/train/launch.h"

namespace weft::app {
namespace {

using namespace plan;

struct Need {
  int64_t total = 0, most = 0;  // of all ranks here, of the fullest
  int ranks = 0;
  StepTrace fullest;
  int64_t answers = 0;  // of it, where it is fullest while answers are made: what these take; else 0
};

// What of a memory it takes: a device has what is computed there, the host what is offloaded to it and, where ranks
// compute on its cores, the rest.
StepTrace part_in(Device memory, const Recipe& recipe, StepTrace stage) {
  if (memory != recipe.mesh.device) stage.peak.split = {};
  if (memory != Device::cpu) stage.host_bytes = 0;
  return stage;
}

Need need_of(const Recipe& recipe, const ModelConfig* teacher, Device memory) {
  const MeshShape& mesh = recipe.mesh.shape;
  Need need{.ranks = launched_by_mpi() ? mpi_ranks_here() : mesh.size()};
  const bool packs_weights = memory == Device::cpu;
  std::vector<int64_t> rounds(size_t(mesh.pp), 0);
  if (recipe.policy.is_on() && memory == recipe.mesh.device) rounds = round_memory(recipe, packs_weights);
  int64_t sum = 0;
  size_t i = 0;
  for (const StepTrace& stage : trace_memory(recipe, {.packs_weights = packs_weights, .teacher = teacher})) {
    const StepTrace here = part_in(memory, recipe, stage);
    const int64_t of_step = here.peak.split.total(), of_round = rounds[i] > 0 ? stage.state_bytes + rounds[i] : 0;
    const int64_t bytes = std::max(of_step, of_round) + here.host_bytes;
    sum += bytes * (mesh.size() / mesh.pp);
    if (bytes > need.most) need.most = bytes, need.fullest = here, need.answers = of_round > of_step ? rounds[i] : 0;
    ++i;
  }
  need.total = launched_by_mpi() ? need.most * need.ranks : sum;  // which stages are here only the launcher knows
  return need;
}

// The mildest change with which it fits.
std::string remedy(const Recipe& recipe, const ModelConfig* teacher, Device memory, int64_t available) {
  const auto fits = [&](const Recipe& changed) { return need_of(changed, teacher, memory).total <= available; };
  const auto with_smallest_batch = [](Recipe r) {
    r.train.accumulation *= r.train.micro_batch, r.train.micro_batch = 1;
    return r;
  };
  const auto with_recomputation = [](Recipe r) {
    r.train.recompute = {.what = RecomputePolicy::What::block};
    return r;
  };
  for (Recipe fewer = recipe; fewer.policy.is_on() && fewer.policy.running > 1;) {
    fewer.policy.running /= 2;
    if (fits(fewer)) return fmt::format("rl.running = {} would fit", fewer.policy.running);
  }
  if (fits(with_recomputation(recipe))) return "mesh.recompute = \"block\" would fit";
  if (fits(with_smallest_batch(recipe))) return "train.micro_batch = 1 would fit";
  const Recipe least = with_smallest_batch(with_recomputation(recipe));
  if (fits(least)) return "mesh.recompute = \"block\" with train.micro_batch = 1 would fit";
  if (recipe.mesh.shape.dp() > 1 && recipe.mesh.zero != Zero::parameters) {
    Recipe sharded = least;
    sharded.mesh.zero = Zero::parameters;
    if (fits(sharded)) return "mesh.zero = 3 with mesh.recompute = \"block\" and train.micro_batch = 1 would fit";
  }
  return "offload (mesh.offload_optimizer = \"disk\"), use more machines (mpirun) or a smaller model; `weft plan` "
         "compares layouts";
}

void check_memory(const Recipe& recipe, const ModelConfig* teacher, Device memory) {
  const Need need = need_of(recipe, teacher, memory);
  const int64_t available = available_bytes(memory, need.ranks);
  if (need.total <= available) return;
  std::string parts;
  const auto add = [&](std::string_view name, int64_t bytes) {
    if (bytes > 0) parts += fmt::format("{}{} {:.2f}", parts.empty() ? "" : ", ", name, gib(bytes));
  };
  if (need.answers > 0)
    add("held between steps", need.fullest.state_bytes), add("while answers are made", need.answers);
  else
    for (int i = 0; i < kNumMemoryUses; ++i) add(name_of(MemoryUse(i)), need.fullest.peak.split[MemoryUse(i)]);
  add("offloaded to the host", need.fullest.host_bytes);
  throw Error(
      "the recipe does not fit: {} {:.2f} GiB, {:.2f} more than the {:.2f} that are free{} (the fullest "
      "{:.2f}: {}); {}",
      need.ranks == 1 ? "1 rank needs" : fmt::format("{} ranks need", need.ranks), gib(need.total),
      gib(need.total - available), gib(available), memory == Device::cpu ? "" : " on this machine's devices",
      gib(need.most), parts, remedy(recipe, teacher, memory, available));
}

}  // namespace

void check_memory(const Recipe& recipe) {
  const std::optional<ModelConfig> teacher = beside_of(recipe);
  const ModelConfig* const taught_by = teacher ? &*teacher : nullptr;
  check_memory(recipe, taught_by, Device::cpu);
  if (recipe.mesh.device != Device::cpu) check_memory(recipe, taught_by, recipe.mesh.device);
}

Recipe choose_mesh(const Toml& own, const Recipe& recipe, const Output& output) {
  if (launched_by_mpi())
    throw UsageError("--mesh auto: mpirun has fixed the ranks; write the mesh, or leave mpirun out");
  Recipe asked = recipe;
  if (asked.model.vocab == 0) {
    std::unique_ptr<ModelSource> start;
    if (!asked.model_path.empty()) start = open_model(asked.model_path, Checkpoint::Check::sizes);
    set_vocab(asked, open_data(asked, start.get()).tokenizer->vocab_size());
  }
  complete(asked.model);
  const Machine machine = describe_machine();
  const int cores = usable_cores();
  SearchRequest q = search_request(asked);
  q.teacher = beside_of(asked);
  const auto [best, one] = choose_ranks(
      cores, double(machine.available_bytes),
      [&](const Cluster& ranks) {
        q.cluster = ranks;
        return search(q).ranked;
      },
      [](const Candidate& c) { return c.plan.step_s; });
  if (!best) {
    check_memory(asked);
    throw Error("--mesh auto: no layout of {} cores divides the batch and the model; write the mesh", cores);
  }
  output.text(fmt::format(
      "weft: --mesh auto: {}, {:.3g} s a step planned{}", describe_layout(best->recipe), best->plan.step_s,
      best->recipe.mesh.size() == one->recipe.mesh.size()
          ? ""
          : fmt::format(" beside {:.3g} s of {}", one->plan.step_s, describe_layout(one->recipe))));
  Toml planned = Toml::parse(recipe_text_over(own, best->recipe), "the planned recipe");
  return read_recipe(planned);
}

}  // namespace weft::app
