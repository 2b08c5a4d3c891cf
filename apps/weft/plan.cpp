// weft plan: which layout, how much memory, how fast and why, before anything is launched.
#include <cmath>

#include "command.h"
#include "kv_dtype.h"
#include "mesh_options.h"
#include "plan_flags.h"
#include "plan_hardware.h"
#include "plan_import.h"
#include "plan_serve.h"
#include "plan_train.h"
#include "weft/parallel/pipeline/check_schedule.h"
#include "weft/parallel/pipeline/draw_schedule.h"
#include "weft/plan/hardware.h"
#include "weft/train/recipe.h"

namespace weft::app {
namespace {

struct PlanCommand {
  TrainPlanOptions train;
  ServePlanOptions serve;
  std::string purpose = "train";
  std::string validate, hardware, import, from, out;
  int micro_batches = 8;
  std::vector<double> costs = {1, 1, 1, 0};
  bool shows_schedule = false, measures = false;
  Output output;
};

void show_schedule(const PlanCommand& o) {
  for (const double cost : o.costs)
    if (!std::isfinite(cost) || cost < 0)
      throw UsageError("--costs {}: a cost of {} is none; write four numbers of at least 0, as in 1,1,1,0",
                       fmt::join(o.costs, ","), cost);
  Toml toml;
  o.train.mesh_options.apply_to(toml);
  MeshOptions::apply_spec(toml, o.train.mesh.empty() ? "pp=4" : o.train.mesh);
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

// What is asked for, as refuse_idle_options has it; what plan() does first where there are several.
std::string use_of(const PlanCommand& o) {
  if (o.measures) return "--measure";
  if (o.shows_schedule) return "--show-schedule";
  if (!o.validate.empty()) return "--validate";
  if (!o.import.empty()) return "--import";
  if (!o.train.pictures.view.empty()) return "--view";
  if (!o.hardware.empty()) return "--show-hardware";
  return "--for " + o.purpose;
}

void plan(const PlanCommand& o, const CLI::App& command) {
  refuse_idle_options(command, use_of(o));
  if (o.measures) return measure_hardware(o.out, o.output);
  if (o.shows_schedule) return show_schedule(o);
  if (!o.validate.empty()) return validate_runs(o.validate, o.output);
  if (!o.import.empty())
    return plan_import({.file = o.import,
                        .from = o.from,
                        .model = o.train.model,
                        .data = o.train.data,
                        .cluster = o.train.cluster,
                        .recipe = o.train.recipe},
                       o.output);
  if (!o.train.pictures.view.empty()) return o.train.pictures.show_trace(o.output);
  if (!o.hardware.empty()) return show_hardware(o.hardware, o.output);
  if (o.train.model.empty() || o.train.cluster.empty())
    throw UsageError(
        "name a model and a cluster, as in weft plan llama-1b --cluster 64xh100-sxm [--for serve]; hardware: {}",
        fmt::join(plan::hardware_names(), ", "));
  if (o.purpose == "train") return plan_training(o.train, o.output);
  ServePlanOptions serve = o.serve;
  serve.model = o.train.model, serve.cluster = o.train.cluster, serve.mesh = o.train.mesh, serve.top = o.train.top;
  if (!o.train.precision.empty()) serve.dtype = o.train.precision;
  serve.has_fp8 = o.train.has_fp8;
  plan_service(serve, o.output);
}

void add_serve_options(CLI::App& c, ServePlanOptions& s) {
  const auto add = [&](const char* name, int64_t& value, int64_t least, const char* what) {
    return c.add_option(name, value, what)
        ->capture_default_str()
        ->check(CLI::Range(least, int64_t(1) << 24))
        ->group("Serving");
  };
  c.add_option("--target", s.target, "latency of one answer, or throughput of all")
      ->check(CLI::IsMember({"latency", "throughput"}))
      ->capture_default_str()
      ->group("Serving");
  add("--input-len", s.input_len, 1, "Tokens of a prompt");
  add("--output-len", s.output_len, 1, "Tokens of an answer");
  c.add_option("--ttft-ms", s.ttft_ms, "At most so long until the first token of an answer")
      ->check(CLI::PositiveNumber)
      ->group("Serving");
  c.add_option("--tpot-ms", s.tpot_ms, "At most so long until each next one, beside the prompts of others")
      ->check(CLI::PositiveNumber)
      ->group("Serving");
  c.add_option("--quantize", s.quantize,
               "How weights may be held, the first that fits: as weft serve has it, several with commas; else all")
      ->delimiter(',')
      ->group("Serving");
  add_kv_dtype(c, s.kv_format);
  add("--tokens-per-step", s.tokens_per_step, 1, "As of weft serve");
  add("--max-running", s.max_running, 1, "As of weft serve");
  add("--block-tokens", s.block_tokens, 1, "As of weft serve");
  auto* draft = c.add_option("--draft", s.draft, "A smaller model that drafts; or mtp, the model's own part for that")
                    ->group("Serving");
  add("--speculate", s.speculate, 1, "Tokens that it drafts in one step")->needs(draft);
  c.add_option("--acceptance", s.acceptance, "How often a draft token is accepted behind those that were")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->needs(draft)
      ->group("Serving");
}

}  // namespace

void add_plan(CLI::App& program) {
  const auto o = std::make_shared<PlanCommand>();
  CLI::App* c =
      program.add_subcommand("plan", "Which layout, how much memory, how fast and why, before anything runs");
  TrainPlanOptions& t = o->train;
  c->add_option("model", t.model, "A preset, a model's folder or file, or a recipe (.toml)");
  c->add_option("--for", o->purpose, "train or serve")
      ->check(CLI::IsMember({"train", "serve"}))
      ->capture_default_str();
  c->add_option("--cluster", t.cluster, "Devices and hardware, as in 64xh100-sxm or 16xmachine.toml");
  c->add_option("--seq-len", t.seq_len, "Tokens of a row")->check(CLI::Range(1, 1 << 24));
  c->add_option("--global-batch", t.global_batch, "Rows of a step, over all devices")->check(CLI::Range(1, 1 << 24));
  c->add_option("--precision", t.precision, "bf16, fp8, fp16 or fp32 [the recipe's, or bf16]")
      ->check(CLI::IsMember({"bf16", "fp8", "fp16", "fp32"}));
  c->add_option("--gradients", t.gradients,
                "Of layers' products: fp32, or bf16 beside bf16 and fp8 [the recipe's, or fp32]")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  c->add_flag("--fp8", t.has_fp8,
              "What if the matrix products of blocks ran in fp8, as in other programs; weft's own: --precision fp8");
  c->add_option("--expert-load", t.expert_load,
                "What if the experts of the busiest rank took so many times an even share: expert_rank_load of "
                "metrics.jsonl [1]")
      ->check(CLI::Range(1.0, 65536.0));
  c->add_option("--rank-by", t.rank_by,
                "time of a step, cost (device-hours of a token, fewer devices tried too), or memory of a device")
      ->check(CLI::IsMember({"time", "cost", "memory"}))
      ->capture_default_str();
  c->add_option("--top", t.top, "Layouts to show")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  c->add_option("--recipe", t.recipe, "Write the recipe of the first layout to this file");
  c->add_option("--data", t.data, "What the recipe trains on")->capture_default_str();
  c->add_option("--timeline", t.timeline, "Write the step of the first layout to this file, for Perfetto");
  t.pictures.add_to(*c);
  c->add_option("--validate", o->validate, "Published runs (CSV): predicted beside measured times, by source");
  c->add_option("--import", o->import,
                "Another program's configuration: what weft does with each of its keys, and the recipe");
  c->add_option("--from", o->from, "Whose it is, where --import does not see it")
      ->check(CLI::IsMember({"deepspeed", "megatron", "nanotron", "picotron", "accelerate"}));
  c->add_option("--show-hardware", o->hardware, "Print an entry of the catalogue as TOML, to copy and change");
  c->add_flag("--measure", o->measures, "Measure this machine, which should be quiet, into a hardware file");
  c->add_option("--out", o->out, "Write what --measure finds to this file (.toml)");
  c->add_flag("--show-schedule", o->shows_schedule, "Draw in which order the ranks of a pipeline work");
  c->add_option("--mesh", t.mesh,
                "Only this layout, as in dp=8,tp=4,zero=1,micro_batch=2; \"recipe\": the recipe's own");
  o->train.mesh_options.add_to(*c);
  c->add_option("--micro-batches", o->micro_batches, "Of a step")->capture_default_str()->check(CLI::Range(1, 4096));
  c->add_option("--costs", o->costs, "Of a forward, the input half and the weight half of a backward, and a message")
      ->expected(4)
      ->delimiter(',')
      ->capture_default_str();
  add_serve_options(*c, o->serve);
  o->output.add_option(*c);
  c->footer(
      "Examples: weft plan llama-1b --cluster 8xh100-sxm --seq-len 4096\n"
      "          weft plan llama-3-8b --for serve --cluster 2xh100-sxm --target throughput --input-len 2048\n"
      "          weft plan --show-schedule --mesh pp=4 --schedule zb-h1 --micro-batches 8");
  c->callback([o, c] { plan(*o, *c); });
}

}  // namespace weft::app
