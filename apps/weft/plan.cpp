// weft plan: what a layout would do, before it runs; so far, the order of work in a pipeline.
#include "command.h"
#include "mesh_options.h"
#include "weft/parallel/pipeline/check_schedule.h"
#include "weft/parallel/pipeline/draw_schedule.h"
#include "weft/train/recipe.h"

namespace weft::app {
namespace {

struct Options {
  std::string mesh = "pp=4";
  MeshOptions mesh_options;
  int micro_batches = 8;
  std::vector<double> costs = {1, 1, 1, 0};
  bool shows_schedule = false;
  Output output;
};

void plan(const Options& o) {
  if (!o.shows_schedule)
    throw UsageError(
        "weft plan draws schedules so far: write --show-schedule, as in weft plan --show-schedule --mesh pp=4");
  Toml toml;
  o.mesh_options.apply_to(toml);
  MeshOptions::apply_spec(toml, o.mesh);
  const MeshConfig mesh = read_mesh(toml);
  read_recompute(toml);
  toml.reject_unknown();
  const Schedule schedule = make_schedule({.kind = mesh.schedule,
                                           .num_ranks = mesh.shape.pp,
                                           .virtual_stages = mesh.virtual_stages,
                                           .num_micro_batches = o.micro_batches});
  const ActionCosts costs{
      .forward = o.costs[0], .backward_input = o.costs[1], .backward_weight = o.costs[2], .send = o.costs[3]};
  const ScheduleReport report = check_schedule(schedule, costs);
  nlohmann::json peaks = nlohmann::json::array();
  for (const RankReport& rank : report.ranks) peaks.push_back(rank.peak_in_flight);
  o.output.json({{"schedule", name_of(mesh.schedule)},
                 {"ranks", schedule.num_ranks()},
                 {"stages", schedule.num_stages()},
                 {"micro_batches", o.micro_batches},
                 {"makespan", report.makespan},
                 {"bubble", report.bubble},
                 {"peak_in_flight", peaks},
                 {"problems", report.problems}});
  if (!o.output.is_json()) o.output.text(draw(schedule, costs));
}

}  // namespace

void add_plan(CLI::App& program) {
  const auto o = std::make_shared<Options>();
  CLI::App* c = program.add_subcommand("plan", "What a layout would do, before it runs");
  c->add_flag("--show-schedule", o->shows_schedule, "Draw in which order the ranks of a pipeline work");
  c->add_option("--mesh", o->mesh, "Axes and sizes, as in pp=4,schedule=zbv")->capture_default_str();
  o->mesh_options.add_to(*c);
  c->add_option("--micro-batches", o->micro_batches, "Of a step")->capture_default_str()->check(CLI::Range(1, 4096));
  c->add_option("--costs", o->costs, "Of a forward, the input half and the weight half of a backward, and a message")
      ->expected(4)
      ->delimiter(',')
      ->capture_default_str();
  o->output.add_option(*c);
  c->footer("Example: weft plan --show-schedule --mesh pp=4 --schedule zb-h1 --micro-batches 8");
  c->callback([o] { plan(*o); });
}

}  // namespace weft::app
