// weft verify: proves meshes equal to one rank.
#include "weft/train/verify.h"

#include "command.h"
#include "mesh_options.h"
#include "weft/base/file.h"
#include "weft/base/machine.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/run_world.h"
#include "weft/comm/single/single.h"
#include "weft/rollout/compared_answers.h"
#include "weft/rollout/engine_answerer.h"
#include "weft/train/launch.h"

namespace weft::app {
namespace {

struct VerifyCommand {
  std::string recipe;
  std::vector<std::string> meshes;
  MeshOptions mesh;
  int steps = 3;
  std::optional<double> tolerance;
  Output output;
};

Recipe recipe_of(const VerifyCommand& o, const std::vector<std::string>& overrides, const std::string& mesh) {
  Toml toml = Toml::load(o.recipe);
  toml.apply(overrides);
  o.mesh.apply_to(toml);
  MeshOptions::apply_spec(toml, mesh);
  return read_recipe(toml);
}

Recipe on_one_rank(Recipe recipe) {
  recipe.mesh = {};
  recipe.train.recompute = {};
  recipe.train.accumulation = recipe.train.global_batch / recipe.train.micro_batch;
  return recipe;
}

// What a mesh and one rank decided alike, before the one rank's decision was taken.
struct Agreement {
  std::optional<double> answers;  // the part of them, where the model gives any
  std::optional<double> experts;  // the part of the choices, in the layer where it is least
};

nlohmann::json row_of(const std::string& mesh, const TrainedRun& run, const Difference& d, double tolerance,
                      const Agreement& same, bool passes) {
  nlohmann::json row{{"mesh", mesh},
                     {"ranks", run.peak_bytes.size()},
                     {"loss", d.loss},
                     {"gradient", d.gradient},
                     {"gradient_name", d.gradient_name},
                     {"weight", d.weight},
                     {"weight_name", d.weight_name},
                     {"tolerance", tolerance},
                     {"peak_bytes", run.peak_bytes},
                     {"sent_bytes", run.sent_bytes},
                     {"pass", passes}};
  if (same.answers) row["same_answers"] = *same.answers;
  if (same.experts) row["same_experts"] = *same.experts;
  return row;
}

void print_row(const Output& output, const std::string& mesh, const TrainedRun& run, const Difference& d,
               const Agreement& same, bool passes) {
  std::string sent;
  for (const auto& [group, bytes] : run.sent_bytes)
    sent += fmt::format("{}{} {}", sent.empty() ? "" : ", ", group, human_bytes(uint64_t(bytes)));
  const int64_t peak = *std::max_element(run.peak_bytes.begin(), run.peak_bytes.end());
  std::string agreed;
  if (same.answers) agreed += fmt::format("  {:.0f}% of the answers are the same", 100 * *same.answers);
  if (same.experts) agreed += fmt::format("  {:.2f}% of the experts are the same", 100 * *same.experts);
  output.text(fmt::format(
      "{:<4} {:<32} loss {:.1e}  gradient {:.1e} ({})  weight {:.1e} ({}){}  peak {} a rank  sent a step: {}",
      passes ? "pass" : "FAIL", mesh, d.loss, d.gradient, d.gradient_name, d.weight, d.weight_name, agreed,
      human_bytes(uint64_t(peak)), sent.empty() ? "nothing" : sent));
}

void verify(const VerifyCommand& o, const std::vector<std::string>& overrides) {
  if (o.tolerance && !(*o.tolerance >= 0))
    throw UsageError("--tolerance {}: write a number of at least 0", *o.tolerance);
  if (launched_by_mpi() && o.meshes.size() > 1)
    throw UsageError("a launcher's processes form one mesh: give one --mesh");
  Recipe one = on_one_rank(recipe_of(o, overrides, o.meshes[0]));
  const auto start = one.model_path.empty() ? nullptr : open_model(one.model_path);  // its shape and its tokenizer
  const Dataset dataset = open_data(one, start.get());
  set_vocab(one, dataset.tokenizer->vocab_size());
  one.policy.log_answers = 0;
  const auto teacher = path_beside(one).empty() ? nullptr : open_model(path_beside(one));
  ComparedAnswers answers;
  VerifySources sources{.data = dataset,
                        .start = start.get(),
                        .teacher = teacher.get(),
                        .make_answerer = answers.recording(),  // its answers are cut as those that are compared
                        .make_reward = ComparedAnswers::made_up_reward};
  make_comparable(one, sources);
  const auto alone = make_single_communicator();
  sources.make_answerer = answers.recording();
  RoutingReplay routing;
  if (one.model.experts > 0) sources.routing = &routing;
  const TrainedRun want = train_some(one, sources, *alone, o.steps, usable_cores());
  sources.make_answerer = answers.replaying();
  routing.start_replaying();
  const double tolerance = o.tolerance.value_or(tolerance_of(one));
  const double least_same = least_same_experts(one.train.precision);
  bool all_are_near = true, all_route_alike = true;
  for (const std::string& mesh : o.meshes) {
    Recipe recipe = recipe_of(o, overrides, mesh);
    set_vocab(recipe, dataset.tokenizer->vocab_size());
    if (recipe.train.global_batch != one.train.global_batch)
      throw UsageError("--mesh {}: train.global_batch is {} there and {} on one rank: write it in the recipe", mesh,
                       recipe.train.global_batch, one.train.global_batch);
    recipe.optimizer = one.optimizer, recipe.policy.log_answers = 0;
    recipe.train.first_loss_scale = one.train.first_loss_scale;
    TrainedRun got;
    bool speaks = true;
    const int threads = std::max(1, usable_cores() / recipe.mesh.size());
    run_world(recipe.mesh.size(),
              [&](Communicator& world) {
                TrainedRun mine = train_some(recipe, sources, world, o.steps, threads);
                if (world.rank() == 0)
                  got = std::move(mine);
                else if (launched_by_mpi())
                  speaks = false;
              },
              {.timeout = std::chrono::seconds(recipe.mesh.timeout_s)});
    if (!speaks) continue;
    // Losses of answers that are worth more or less than others to a prompt are all but 0.
    const Difference d = one.policy.is_on() ? difference(got, want, 1) : difference(got, want);
    Agreement same;
    if (one.policy.is_on()) same.answers = answers.take_share_of_same();
    if (one.model.experts > 0) same.experts = routing.take_least_share_of_same();
    const bool routes_alike = same.experts.value_or(1) >= least_same, passes = d.is_within(tolerance) && routes_alike;
    all_are_near &= d.is_within(tolerance), all_route_alike &= routes_alike;
    o.output.json(row_of(mesh, got, d, tolerance, same, passes));
    if (!o.output.is_json()) print_row(o.output, mesh, got, d, same, passes);
  }
  if (!all_are_near) throw Error("a mesh differs from one rank by more than {:g}", tolerance);
  if (!all_route_alike)
    throw Error("a mesh chooses other experts than one rank for more than {:g}% of a layer's tokens",
                100 * (1 - least_same));
}

}  // namespace

void add_verify(CLI::App& program) {
  const auto o = std::make_shared<VerifyCommand>();
  CLI::App* c =
      program.add_subcommand("verify", "Prove meshes equal to one rank: loss, every gradient, updated weights");
  c->add_option("RECIPE", o->recipe, "A TOML file")->required();
  c->add_option("--mesh", o->meshes, "Axes and sizes, and other keys of [mesh], as in dp=2,tp=2,zero=3")
      ->required()
      ->allow_extra_args(false);
  o->mesh.add_to(*c);
  c->add_option("--steps", o->steps, "Steps to train")->capture_default_str()->check(CLI::Range(1, 1000));
  c->add_option(
      "--tolerance", o->tolerance,
      "Relative, 0: the same bits; default: 1e-5 for fp32, 2e-2 for bf16 and fp16, 0.2 for fp8, and more for "
      "some models and optimizers (docs/parallelism.md, Proof)");
  o->output.add_option(*c);
  c->allow_extras();
  c->footer(
      "The learning rate is held constant and optimizer.eps is raised to ten times the size of the gradients, so "
      "that "
      "rounding\n"
      "errors stay rounding errors. Relative differences are those of the worst element.\n"
      "Example: weft verify recipes/quickstart.toml --mesh dp=2 --mesh tp=2,pp=2 --mesh dp=2,tp=2,zero=3");
  c->callback([o, c] { verify(*o, c->remaining()); });
}

}  // namespace weft::app
