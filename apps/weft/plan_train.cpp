// weft plan MODEL: search or one layout, in figures and in words.
#include "plan_train.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "mesh_options.h"
#include "recipe_vocab.h"
#include "weft/base/ceil_div.h"
#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/base/units.h"
#include "weft/plan/published_choice.h"
#include "weft/plan/recipe_text.h"
#include "weft/plan/scaling.h"
#include "weft/plan/validate.h"
#include "weft/plan/write_trace.h"
#include "weft/pretrained/model_source.h"
#include "weft/train/recipe_names.h"

namespace weft::app {
namespace {

using namespace plan;

bool is_recipe(const std::string& model) { return model.ends_with(".toml"); }

// The layout that a recipe has itself.
bool is_own_layout(const TrainPlanOptions& o) { return is_recipe(o.model) && o.mesh == "recipe"; }

ModelConfig model_of(const std::string& name) {
  if (std::filesystem::exists(name)) {
    ModelConfig config = model_config_of(name);
    if (config.bidirectional) require_writing(config, name);  // training predicts what comes next
    return config;
  }
  return preset(name);
}

// As many rows as make about a million tokens, the same number for each device.
int64_t usual_batch(int64_t seq_len, int num_devices) {
  constexpr int64_t kTokens = 1 << 20;
  const int64_t rows = std::max<int64_t>(kTokens / seq_len, 1);
  return round_up(rows, num_devices);
}

// What is planned, and the recipe that asks for it.
struct Asked {
  SearchRequest search;
  std::optional<Toml> own;  // as written
  Recipe recipe;            // what a plan leaves as it is
};

Asked asked_for(const TrainPlanOptions& o) {
  Asked asked;
  SearchRequest& q = asked.search;
  Recipe& r = asked.recipe;
  if (is_recipe(o.model)) {
    asked.own = Toml::load(o.model);
    if (!o.precision.empty()) asked.own->put("train.precision", o.precision);
    if (!o.gradients.empty()) asked.own->put("train.gradients", o.gradients);
    if (is_own_layout(o)) {  // which fixes the parts of a batch
      if (o.seq_len > 0) asked.own->put("train.seq_len", o.seq_len);
      if (o.global_batch > 0) asked.own->put("train.global_batch", o.global_batch);
    }
    Toml toml = *asked.own;
    r = read_recipe(toml);
    settle_vocab(r);
    q = search_request(r);
    q.teacher = beside_of(r);
  } else {
    q.model = model_of(o.model);
    if (std::filesystem::exists(o.model)) r.model_path = o.model;
    r.data.train = o.data;
    if (!o.precision.empty())
      q.precision = Precision(std::ranges::find(kPrecisionNames, o.precision) - kPrecisionNames);
    if (!o.gradients.empty()) q.gradients = gradient_type(o.gradients, q.precision, "--gradients");
  }
  q.cluster = parse_cluster(o.cluster);
  q.rank_by = RankBy(std::ranges::find(kRankByNames, o.rank_by) - kRankByNames);
  q.stack.has_fp8 = o.has_fp8;
  if (o.seq_len > 0) q.seq_len = o.seq_len;
  if (q.seq_len == 0) q.seq_len = std::min<int64_t>(q.model.context > 0 ? q.model.context : 4096, 8192);
  if (q.model.context < q.seq_len) q.model.context = q.seq_len;
  complete(q.model);
  if (o.expert_load > 0) {
    if (q.model.experts == 0) throw UsageError("--expert-load: the model has no experts: leave it out");
    q.stack.expert_load = o.expert_load;
  }
  if (o.global_batch > 0) q.global_batch = o.global_batch;
  if (q.global_batch == 0) q.global_batch = usual_batch(q.seq_len, q.cluster.num_devices);
  return asked;
}

nlohmann::json to_json(const MemorySplit& split) {
  nlohmann::json json;
  for (int i = 0; i < kNumMemoryUses; ++i) json[std::string(name_of(MemoryUse(i)))] = split[MemoryUse(i)];
  return json;
}

nlohmann::json to_json(const TimeSplit& time) {
  nlohmann::json exposed = nlohmann::json::object();
  for (int axis = 0; axis < kNumAxes; ++axis)
    if (time.exposed_s[size_t(axis)] > 0) exposed[std::string(name_of(Axis(axis)))] = time.exposed_s[size_t(axis)];
  return {{"matmul_s", time.matmul_s}, {"attention_s", time.attention_s},          {"memory_bound_s", time.memory_s},
          {"update_s", time.update_s}, {"waiting_s", time.bubble_s + time.idle_s}, {"exposed_s", exposed}};
}

// What answers take that the model learns from; where it makes none, nothing.
void add_round(const StepPlan& p, nlohmann::json& to) {
  if (p.round_bytes.empty()) return;
  to["round_s"] = p.round_s, to["answer_tokens_per_s"] = p.answer_tokens_per_s;
  to["step_with_answers_s"] = p.step_with_answers_s(), to["round_bytes_by_stage"] = p.round_bytes;
}

nlohmann::json to_json(const Candidate& c) {
  const StepPlan& p = c.plan;
  const MemoryPeak& peak = p.memory[size_t(p.fullest)];
  nlohmann::json stages = nlohmann::json::array();
  for (const MemoryPeak& stage : p.memory) stages.push_back(stage.split.total());
  const MeshShape& s = c.recipe.mesh.shape;
  nlohmann::json json{{"layout", describe_layout(c.recipe)},
                      {"mesh",
                       {{"dp", s.dp()},
                        {"tp", s.tp},
                        {"pp", s.pp},
                        {"cp", s.cp},
                        {"ep", s.ep},
                        {"hsdp", s.replicate},
                        {"zero", int(c.recipe.mesh.zero)},
                        {"schedule", name_of(c.recipe.mesh.schedule)},
                        {"virtual_stages", c.recipe.mesh.virtual_stages}}},
                      {"micro_batch", c.recipe.train.micro_batch},
                      {"step_s", p.step_s},
                      {"tokens_per_s", p.tokens_per_s},
                      {"device_hours_per_billion_tokens", 1e9 * c.device_hours_per_token()},
                      {"mfu", p.mfu},
                      {"mfu_whole_attention", p.mfu_whole},
                      {"bubble", p.bubble},
                      {"matmul_s", p.time.matmul_s},
                      {"attention_s", p.time.attention_s},
                      {"memory_bound_s", p.time.memory_s},
                      {"update_s", p.time.update_s},
                      {"exposed_s", to_json(p.time)["exposed_s"]},
                      {"bound", p.bound()},
                      {"peak_bytes", p.peak_bytes()},
                      {"peak_bytes_by_stage", stages},
                      {"peak", to_json(peak.split)},
                      {"peak_where", peak.where},
                      {"peak_stage", p.fullest},
                      {"capacity_bytes", p.capacity_bytes},
                      {"host_bytes_by_stage", p.host_bytes},
                      {"fits", p.fits()},
                      {"loses", c.loses}};
  add_round(p, json);
  return json;
}

void show(const Candidate& c, const Output& output) {
  const StepPlan& p = c.plan;
  const MemoryPeak& peak = p.memory[size_t(p.fullest)];
  output.text(describe_layout(c.recipe));
  output.text(fmt::format("  time    {:.4g} s a step, {:.0f} tokens/s, MFU {:.1f}% ({:.1f}% with whole attention)",
                          p.step_s, p.tokens_per_s, 100 * p.mfu, 100 * p.mfu_whole));
  const TimeSplit& t = p.time;
  const auto share = [&](double s) { return 100 * s / p.step_s; };
  output.text(fmt::format(
      "          products {:.0f}%, attention {:.0f}%, other kernels {:.0f}%, update {:.0f}%, collectives waited for "
      "{:.0f}%, bubble {:.0f}%",
      share(t.matmul_s), share(t.attention_s), share(t.memory_s), share(t.update_s), share(t.exposed_total()),
      share(t.bubble_s + t.idle_s)));
  if (!p.round_bytes.empty())
    output.text(fmt::format(
        "  answers {:.4g} s a round of {} at the longest, {:.0f} tokens/s; {:.4g} s a step with them; {:.2f} GiB",
        p.round_s, c.recipe.train.global_batch * c.recipe.policy.updates, p.answer_tokens_per_s,
        p.step_with_answers_s(), gib(p.most_round_bytes())));
  output.text(fmt::format("  cost    {:.4g} device-hours a billion tokens", 1e9 * c.device_hours_per_token()));
  output.text(fmt::format("  bound   {}", p.bound()));
  std::string split;
  for (int i = 0; i < kNumMemoryUses; ++i)
    split += fmt::format("{}{} {:.2f}", i == 0 ? "" : ", ", name_of(MemoryUse(i)), gib(peak.split[MemoryUse(i)]));
  output.text(fmt::format("  memory  {:.2f} of {:.2f} GiB on stage {}: {}; most at {}", gib(p.peak_bytes()),
                          gib(p.capacity_bytes), p.fullest, split, peak.where));
  if (p.most_host_bytes() > 0)
    output.text(fmt::format("  host    {:.2f} GiB of a rank are offloaded{}", gib(p.most_host_bytes()),
                            p.host_capacity_bytes > 0 ? fmt::format(", of {:.2f}", gib(p.host_capacity_bytes)) : ""));
}

std::string text_of(const Asked& asked, Recipe planned) {
  if (asked.own) return recipe_text_over(*asked.own, planned);
  planned.model_path = asked.recipe.model_path, planned.data = asked.recipe.data;
  const Cluster& cluster = asked.search.cluster;
  return recipe_text(planned, fmt::format("Planned for {} x {}: {}.", cluster.num_devices, cluster.hardware.name,
                                          describe_layout(planned)));
}

// The pictures of the report's first layout, and of the others what they are compared by.
void draw(const TrainPlanOptions& o, const SearchRequest& q, Report report) {
  if (o.timeline.empty() && !o.pictures.is_asked()) return;
  Candidate& first = report.layouts.front();
  first.plan = plan_step(first.recipe, q.cluster,
                         {.stack = q.stack, .has_spans = true, .teacher = q.teacher ? &*q.teacher : nullptr});
  if (!o.timeline.empty()) write_file_atomically(FileSystem::real(), o.timeline, trace_json(timeline_of(first.plan)));
  if (!o.pictures.is_asked()) return;
  report.model = o.model, report.cluster = o.cluster, report.request = q;
  o.pictures.write(std::move(report));
}

// What the next size up changes, with the same batch.
void show_next(const Candidate& best, const ScalePoint& next, const Output& output) {
  if (!next.is_planned()) return output.text(fmt::format("  twice   {} devices: {}", next.num_devices, next.why_not));
  output.text(fmt::format("  twice   {} devices: {}, {:.4g} s a step, {:.0f}% of the tokens of a device",
                          next.num_devices, next.layout, next.step_s,
                          100 * next.tokens_per_s_a_device() * best.recipe.mesh.size() / best.plan.tokens_per_s));
}

void write_recipe(const TrainPlanOptions& o, const Asked& asked, const Recipe& chosen) {
  if (!o.recipe.empty()) write_file_atomically(FileSystem::real(), o.recipe, text_of(asked, chosen));
}

void check_devices(const TrainPlanOptions& o, const MeshConfig& mesh, const Cluster& cluster) {
  if (mesh.size() > cluster.num_devices)
    throw UsageError("--mesh {}: it takes {} devices, and --cluster {} has {}: write a smaller mesh or more devices",
                     o.mesh, mesh.size(), o.cluster, cluster.num_devices);
}

// The layout of --mesh and of the options beside it. Throws UsageError for what `weft train` would refuse.
Recipe recipe_of_mesh(const TrainPlanOptions& o, const Asked& asked) {
  const SearchRequest& q = asked.search;
  Toml toml;
  o.mesh_options.apply_to(toml);
  MeshOptions::apply_spec(toml, o.mesh);
  Recipe r;
  r.mesh = read_mesh(toml);
  r.train.recompute = read_recompute(toml);
  r.model = q.model, r.optimizer = q.optimizer;
  r.preference = q.preference, r.distill = q.distill, r.policy = q.policy;
  TrainConfig& t = r.train;
  t.steps = 1000, t.seq_len = q.seq_len, t.global_batch = q.global_batch;
  t.precision = q.precision, t.gradients = q.gradients;
  t.micro_batch = toml.integer("mesh.micro_batch", 1, 1);
  toml.reject_unknown();
  check_devices(o, r.mesh, q.cluster);
  const int64_t rows = t.micro_batch * r.mesh.shape.dp();
  if (q.global_batch % rows != 0)
    throw UsageError("--global-batch {} is not a multiple of micro_batch x dp = {}", q.global_batch, rows);
  t.accumulation = q.global_batch / rows;
  text_of(asked, r);  // which reads it again
  return r;
}

// The one layout that was asked for.
void plan_one(const TrainPlanOptions& o, const Asked& asked, const Output& output) {
  const SearchRequest& q = asked.search;
  Candidate c{.recipe = is_own_layout(o) ? asked.recipe : recipe_of_mesh(o, asked)};
  check_devices(o, c.recipe.mesh, q.cluster);
  const int idle = q.cluster.num_devices - c.recipe.mesh.size();
  c.plan = plan_step(c.recipe, q.cluster, {.stack = q.stack, .teacher = q.teacher ? &*q.teacher : nullptr});
  nlohmann::json json = to_json(c);
  json["idle_devices"] = idle;
  output.json(json);
  if (!output.is_json()) show(c, output);
  if (idle > 0) output.text(fmt::format("  idle    {} of the cluster's {} devices", idle, q.cluster.num_devices));
  write_recipe(o, asked, c.recipe);
  const std::string remedy =
      "use recomputation, a smaller micro-batch, or more devices (weft plan without --mesh searches)";
  draw(o, q, {.layouts = {c}, .remedy = remedy});
  if (c.plan.missing_host_bytes() > 0)
    throw Error(
        "it does not fit: of what a rank offloads, {:.1f} GiB find no room on the host ({:.1f} of a node's "
        "{:.1f} are a device's); offload less, or to the disk",
        gib(c.plan.missing_host_bytes()), gib(c.plan.host_capacity_bytes), gib(q.cluster.hardware.host_bytes));
  if (c.plan.most_round_bytes() > c.plan.peak_bytes() && !c.plan.fits())
    throw Error("it does not fit: {:.1f} GiB are missing while answers are made; lower rl.running",
                gib(c.plan.missing_bytes()));
  if (!c.plan.fits())
    throw Error("it does not fit: {:.1f} GiB are missing on stage {}; {}", gib(c.plan.missing_bytes()),
                c.plan.fullest, remedy);
}

}  // namespace

void plan_training(const TrainPlanOptions& o, const Output& output) {
  if (!o.pictures.beside.empty() && !o.pictures.is_asked())
    throw UsageError("--beside {}: write where the picture goes, with --report or --svg", o.pictures.beside);
  Asked asked = asked_for(o);
  if (o.mesh_options.is_any_given() && (o.mesh.empty() || is_own_layout(o)))
    throw UsageError("--zero, --recompute and the like belong to one layout: name it, as in --mesh dp=2,tp=2");
  if (!o.mesh.empty()) return plan_one(o, asked, output);
  SearchRequest& q = asked.search;
  // Models with hundreds of experts take a while; scripts that read what is printed are told nothing.
  if (::isatty(STDERR_FILENO) != 0) q.progress = [](const std::string& what) { fmt::print(stderr, "{}\n", what); };
  const SearchResult found = search(q);
  if (found.ranked.empty()) {
    const Candidate& nearest = *found.nearest;
    const std::string more = found.devices_that_fit > 0 ? fmt::format("{} devices would do", found.devices_that_fit)
                                                        : "not even 16 times as many devices would do";
    output.json({{"fits", false},
                 {"missing_bytes", found.nearest_missing_bytes},
                 {"nearest", to_json(nearest)},
                 {"devices_that_fit", found.devices_that_fit}});
    draw(o, q, {.layouts = {nearest}, .num_layouts = found.num_layouts, .remedy = more});
    throw Error("no layout of {} x {} fits: the nearest, {}, misses {:.1f} GiB on a device; {}",
                q.cluster.num_devices, q.cluster.hardware.name, describe_layout(nearest.recipe),
                gib(found.nearest_missing_bytes), more);
  }
  nlohmann::json ranked = nlohmann::json::array(), dominated = nlohmann::json::array();
  for (const Candidate& c : found.ranked) ranked.push_back(to_json(c));
  for (const Candidate& c : found.dominated) dominated.push_back(to_json(c));
  std::vector<Candidate> all = found.ranked;
  all.insert(all.end(), found.dominated.begin(), found.dominated.end());
  const ScalePoint next = scale_point(q, 2 * q.cluster.num_devices, q.global_batch);
  nlohmann::json twice = {{"devices", next.num_devices}};
  if (next.is_planned())
    twice.update({{"layout", next.layout}, {"step_s", next.step_s}, {"tokens_per_s", next.tokens_per_s}});
  else
    twice["why_not"] = next.why_not;
  output.json({{"fits", true},
               {"twice", twice},
               {"num_layouts", found.num_layouts},
               {"num_fitting", found.num_fitting},
               {"seq_len", q.seq_len},
               {"global_batch", q.global_batch},
               {"ranked", ranked},
               {"dominated", dominated}});
  if (!output.is_json()) {
    output.text(fmt::format("{} layouts of {} x {}, of which {} fit; {} rows of {} tokens a step", found.num_layouts,
                            q.cluster.num_devices, q.cluster.hardware.name, found.num_fitting, q.global_batch,
                            q.seq_len));
    show(found.ranked.front(), output);
    show_next(found.ranked.front(), next, output);
    output.text(explain_layout(found.ranked.front().recipe));
    for (size_t i = 1; i < all.size() && int(i) < o.top; ++i) {
      const Candidate& c = all[i];
      if (i == found.ranked.size()) output.text("Slower, and in memory no better, than one of these:");
      output.text(fmt::format("{}. {:.4g} s, {:.1f} GiB  {}: {}", i + 1, c.plan.step_s, gib(c.plan.peak_bytes()),
                              describe_layout(c.recipe), c.loses));
    }
  }
  write_recipe(o, asked, found.ranked.front().recipe);
  draw(o, q, {.layouts = all, .num_layouts = found.num_layouts, .num_fitting = found.num_fitting});
}

void validate_runs(const std::string& path, const Output& output) {
  constexpr uint64_t kMostBytes = uint64_t(64) << 20;
  const Validation v = validate(read_csv(read_file(path, kMostBytes), path));
  const auto summary = [](const ErrorSummary& s) -> nlohmann::json {
    return {{"count", s.count}, {"median", s.median}, {"p90", s.p90}, {"mean", s.mean}, {"bias", s.bias}};
  };
  nlohmann::json runs = nlohmann::json::array(), left_out = nlohmann::json::array(), sources;
  for (const ValidatedRun& r : v.runs)
    runs.push_back({{"id", r.id},
                    {"source", r.source},
                    {"measured_s", r.measured_s},
                    {"predicted_s", r.predicted_s},
                    {"error", r.error()},
                    {"time", to_json(r.time)}});
  for (const ReadRun& r : v.left_out) left_out.push_back({{"id", r.id}, {"why", r.why_not}});
  for (const std::string& source : v.sources()) sources[source] = summary(summarise(v.runs, source));
  const std::vector<PublishedChoice> choices = published_choices(v.runs);
  nlohmann::json chosen = nlohmann::json::array();
  for (const PublishedChoice& c : choices)
    chosen.push_back(
        {{"task", c.task}, {"layout", c.layout}, {"layouts", c.layouts}, {"place", c.place}, {"loss", c.loss}});
  output.json({{"runs", runs},
               {"left_out", left_out},
               {"sources", sources},
               {"all", summary(summarise(v.runs))},
               {"choices", chosen}});
  if (output.is_json()) return;
  const auto line = [&](const std::string& name, const ErrorSummary& s) {
    output.text(
        fmt::format("{:<12} {:>5} runs  median {:>5.1f}%  90th percentile {:>5.1f}%  mean {:>5.1f}%  bias {:>+6.1f}%",
                    name, s.count, 100 * s.median, 100 * s.p90, 100 * s.mean, 100 * s.bias));
  };
  for (const std::string& source : v.sources()) line(source, summarise(v.runs, source));
  line("all", summarise(v.runs));
  const auto among = [&](int place) {
    return std::ranges::count_if(choices, [&](const PublishedChoice& c) { return c.place <= place; });
  };
  output.text(
      fmt::format("choice: of {} models that were measured in three or more layouts on the same devices, the layout "
                  "ranked first was the fastest of {}, among the two fastest of {}",
                  choices.size(), among(1), among(2)));
  output.text(fmt::format("{} runs are left out; --json says which and why", v.left_out.size()));
}

}  // namespace weft::app
