// weft train: runs a recipe.
#include "weft/train/launch.h"

#include <unistd.h>
#include <cmath>
#include <ctime>

#include <csignal>

#include "command.h"
#include "hosts.h"
#include "limits.h"
#include "mesh_options.h"
#include "train_check.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/rollout/engine_answerer.h"
#include "weft/train/run_lock.h"
#include "weft/train/supervisor.h"

namespace weft::app {
namespace {

constexpr const char* kAutoMesh = "auto";

struct TrainCommand {
  std::string recipe, mesh;
  MeshOptions mesh_options;
  Hosts hosts;
  SupervisorOptions supervisor;
  Output output;
};

std::atomic<bool> asked_to_stop{false};
std::atomic<int> asked_by{0};  // a signal of this process; of other ranks' it knows nothing
std::atomic<std::time_t> asked_at{0};
static_assert(std::atomic<std::time_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

// The first signal ends the run after its step, with a checkpoint; one that comes more than a second later ends the
// process at once. Launchers often send a signal twice.
void stop_after_step(int signal) {
  const std::time_t now = std::time(nullptr);
  if (asked_to_stop.exchange(true)) {
    if (now - asked_at.load() > 1) ::_exit(128 + signal);
    return;
  }
  asked_at = now, asked_by = signal;
}

// Empty: the run went to its end.
std::string how_it_stopped(const RunReport& r, int64_t steps) {
  if (!r.was_interrupted || r.steps >= steps) return {};
  const int by = asked_by;
  return fmt::format("stopped by {} at step {} of {}: ",
                     by == SIGINT    ? "SIGINT"
                     : by == SIGTERM ? "SIGTERM"
                                     : "a signal",
                     r.steps, steps);
}

nlohmann::json number_or_null(double x) { return std::isfinite(x) ? nlohmann::json(x) : nlohmann::json(); }

std::atomic<int> signal_to_pass_on{0};

// Runs the resolved recipe as processes of its own, again when they fail.
void supervise(const TrainCommand& o, const Recipe& recipe) {
  if (launched_by_mpi())
    throw UsageError(
        "--restarts, --hosts and --hostfile are for weft itself, which then starts mpirun: leave mpirun out");
  if (recipe.checkpoint.dir.empty() && o.supervisor.restarts > 0)
    throw UsageError("--restarts {}: there would be nothing to restart from; write checkpoint.dir",
                     o.supervisor.restarts);
  const std::string file = join_path(recipe.log.dir, "supervised.toml");
  const LockFile lock = lock_supervision(recipe.log.dir, recipe.checkpoint.dir);
  write_file_atomically(FileSystem::real(), file, recipe.text);
  std::vector<std::string> job{own_program(), "train", file};
  if (o.output.is_json()) job.emplace_back("--json");
  if (o.hosts.are_given()) job = o.hosts.launch(recipe.mesh.size(), job);
  SupervisorOptions options = o.supervisor;
  options.checkpoint_dir = recipe.checkpoint.dir, options.log_dir = recipe.log.dir;
  options.stop_signal = &signal_to_pass_on;
  options.launcher_passes_on = o.hosts.are_given() ? kStopRanks : 0;
  std::signal(SIGINT, [](int number) { signal_to_pass_on = number; });
  std::signal(SIGTERM, [](int number) { signal_to_pass_on = number; });
  const ExitStatus status = weft::supervise(job, {"--checkpoint.resume=auto"}, options);
  if (status.is_success()) return;
  if (status.code == 2) throw UsageError("the job refused its recipe, as said above");
  throw Error("training did not end: {}", status.describe());
}

void train(const TrainCommand& o, const std::vector<std::string>& overrides) {
  Toml toml = Toml::load(o.recipe);
  toml.apply(overrides);
  o.mesh_options.apply_to(toml);
  if (o.mesh != kAutoMesh) MeshOptions::apply_spec(toml, o.mesh);
  const Toml own = toml;
  Recipe recipe = read_recipe(toml);
  if (o.mesh == kAutoMesh) recipe = choose_mesh(own, recipe, o.output);
  if (o.supervisor.restarts > 0 || o.hosts.are_given()) return supervise(o, recipe);
  std::signal(SIGINT, stop_after_step);
  std::signal(SIGTERM, stop_after_step);
  std::signal(kStopRanks, stop_after_step);
  const double peak = recipe.mesh.device == Device::cpu ? 0 : device_peak_flops(recipe.dtype());
  const RunReport r = weft::train(recipe, {.device_peak_flops = peak,
                                           .stop = &asked_to_stop,
                                           .make_answerer = make_engine_answerer,
                                           .check = check_memory});
  if (!r.is_first_rank) return;  // of the processes of a launcher, one speaks
  const bool has_trained = r.steps > r.first_step;
  o.output.json({{"first_step", r.first_step},
                 {"steps", r.steps},
                 {"first_loss", has_trained ? nlohmann::json(r.first_loss) : nullptr},
                 {"loss", has_trained ? nlohmann::json(r.loss) : nullptr},
                 {"eval_loss", number_or_null(r.eval_loss)},
                 {"reward", number_or_null(r.reward)},
                 {"eval_reward", number_or_null(r.eval_reward)},
                 {"tokens_per_s", has_trained ? nlohmann::json(r.tokens_per_s) : nullptr},
                 {"mfu", has_trained ? nlohmann::json(r.mfu) : nullptr},
                 {"seconds", r.seconds},
                 {"checkpoint", r.checkpoint},
                 {"interrupted", r.was_interrupted}});
  if (o.output.is_json()) return;
  const std::string stopped = how_it_stopped(r, recipe.train.steps);
  const std::string loss = has_trained       ? fmt::format("loss {:.4f} -> {:.4f}", r.first_loss, r.loss)
                           : stopped.empty() ? "nothing left to train"
                                             : "nothing was trained";
  o.output.text(fmt::format("{}{} steps in {:.1f} s, {}{}, {:.0f} tokens/s{}", stopped, r.steps - r.first_step,
                            r.seconds, loss,
                            std::isfinite(r.eval_loss)     ? fmt::format(", validation {:.4f}", r.eval_loss)
                            : std::isfinite(r.eval_reward) ? fmt::format(", validation reward {:.4f}", r.eval_reward)
                                                           : "",
                            r.tokens_per_s, r.checkpoint.empty() ? "" : "; saved " + r.checkpoint));
}

}  // namespace

void add_train(CLI::App& program) {
  const auto o = std::make_shared<TrainCommand>();
  CLI::App* c = program.add_subcommand("train", "Train a model as a recipe says");
  c->add_option("RECIPE", o->recipe, "A TOML file")->required();
  c->add_option("--mesh", o->mesh, "Axes and sizes, as in dp=2,tp=2,pp=2; or auto: the fastest of this machine");
  o->mesh_options.add_to(*c);
  o->hosts.add_to(*c);
  SupervisorOptions& s = o->supervisor;
  c->add_option("--restarts", s.restarts, "Restart a dead or hung job at most so often, from its newest checkpoint")
      ->check(CLI::Range(0, 1 << 20));
  c->add_option("--give-up-after", s.give_up_after,
                "Failures in a row without a new checkpoint that end all restarts")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--hang-after", s.hang_after_s,
                "Seconds without a step after which a job is taken for hung; 0: never")
      ->capture_default_str();
  c->add_option("--restart-pause", s.first_pause_s, "Seconds before a restart, doubled while no checkpoint is new")
      ->capture_default_str();
  o->output.add_option(*c);
  c->allow_extras();
  c->footer(
      "Any key of the recipe can be set as --section.key=value.\n"
      "Example: weft train recipes/quickstart.toml --train.steps=200 --mesh dp=2");
  c->callback([o, c] { train(*o, c->remaining()); });
}

}  // namespace weft::app
