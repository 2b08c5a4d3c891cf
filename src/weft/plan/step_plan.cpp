// plan_step: trace, simulate, continue.
#include "weft/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/plan/continued_step.h"
#include "weft/plan/round_plan.h"

namespace weft::plan {
namespace {

struct Played {
  std::vector<StepTrace> traces;
  Simulation simulation;
  std::vector<MemoryCurve> curves;
  int64_t accumulation = 1;
};

MemoryCurve curve_of(const StepTrace& trace, const std::vector<double>& event_s, double step_s) {
  const auto time_of = [&](int64_t event) {
    return size_t(event) < event_s.size() ? event_s[size_t(event)] : step_s;
  };
  MemoryCurve curve{.points = {}, .peak = trace.peak, .peak_s = time_of(trace.peak.event)};
  for (const MemorySample& s : trace.memory) curve.points.push_back({time_of(s.event), s.split});
  return curve;
}

Played play(const Recipe& recipe, const CostModel& costs, bool has_spans, const PlanOptions& o) {
  Played p;
  p.accumulation = recipe.train.accumulation;
  p.traces = trace_stages(recipe, {.has_memory = has_spans,
                                   .packs_weights = costs.is_shared(),
                                   .teacher = o.teacher,
                                   .expert_load = o.stack.expert_load});
  p.simulation = simulate(p.traces, costs, has_spans);
  for (size_t r = 0; r < p.traces.size(); ++r) {
    StepTrace& t = p.traces[r];
    if (has_spans) p.curves.push_back(curve_of(t, p.simulation.event_s[r], p.simulation.step_s));
    t.events = {}, t.memory = {};
  }
  return p;
}

void go_on(const ContinuedStep& step, TimeSplit& later, const TimeSplit& earlier) {
  for (double TimeSplit::*part : {&TimeSplit::matmul_s, &TimeSplit::attention_s, &TimeSplit::memory_s,
                                  &TimeSplit::update_s, &TimeSplit::bubble_s, &TimeSplit::idle_s})
    later.*part = step(later.*part, earlier.*part);
  for (size_t i = 0; i < later.exposed_s.size(); ++i)
    later.exposed_s[i] = step(later.exposed_s[i], earlier.exposed_s[i]);
}

Played play_all(const Recipe& recipe, const CostModel& costs, const PlanOptions& o) {
  const ContinuedStep step(recipe);
  if (step.is_whole()) return play(recipe, costs, o.has_spans, o);
  const Played earlier = play(with_accumulation(recipe, step.earlier), costs, false, o);
  Played later = play(with_accumulation(recipe, step.later), costs, o.has_spans, o);
  Simulation& s = later.simulation;
  s.step_s = step(s.step_s, earlier.simulation.step_s);
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    go_on(step, s.ranks[r], earlier.simulation.ranks[r]);
    step.go_on(later.traces[r], earlier.traces[r]);
  }
  return later;
}

}  // namespace

MatmulType matmul_type(Precision precision) {
  return precision == Precision::fp32   ? MatmulType::fp32
         : precision == Precision::fp16 ? MatmulType::fp16
                                        : MatmulType::bf16;
}

StepPlan plan_step(const Recipe& recipe, const Cluster& cluster, const PlanOptions& options) {
  const CostModel costs(cluster.hardware, recipe.mesh.shape, options.stack);
  Played played = play_all(recipe, costs, options);
  StepPlan plan;
  const double own_bytes = costs.hardware().memory_bytes - costs.hardware().reserved_bytes;
  plan.capacity_bytes = own_bytes;
  // Where ranks compute on the host's cores, what is offloaded to it takes from the same memory.
  const bool is_host = costs.is_shared();
  if (!is_host) plan.host_capacity_bytes = cluster.hardware.host_bytes / cluster.hardware.devices_per_node;
  for (StepTrace& t : played.traces) {
    if (t.peak.split.total() > (plan.memory.empty() ? -1 : plan.peak_bytes())) plan.fullest = int(plan.memory.size());
    plan.memory.push_back(std::move(t.peak));
    plan.state_bytes.push_back(t.state_bytes);
    plan.host_bytes.push_back(t.host_bytes);
    if (is_host) plan.capacity_bytes = std::min(plan.capacity_bytes, own_bytes - double(t.host_bytes));
  }
  if (recipe.policy.is_on()) {
    const RoundPlan round = plan_round(recipe, costs);
    for (size_t i = 0; i < round.bytes.size(); ++i) plan.round_bytes.push_back(plan.state_bytes[i] + round.bytes[i]);
    plan.round_s = round.seconds, plan.answer_tokens_per_s = round.tokens_per_s;
    plan.round_share_s = round.seconds / double(recipe.policy.updates);
  }
  const Simulation& s = played.simulation;
  plan.step_s = s.step_s;
  const auto work = [](const TimeSplit& t) { return t.compute() + t.update_s + t.exposed_total(); };
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    if (work(s.ranks[r]) > work(s.ranks[size_t(plan.slowest)])) plan.slowest = int(r);
    plan.bubble += (s.ranks[r].bubble_s + s.ranks[r].idle_s) / s.step_s / double(s.ranks.size());
  }
  plan.time = s.ranks[size_t(plan.slowest)];
  plan.spans = std::move(played.simulation.spans);
  plan.curves = std::move(played.curves);
  plan.num_played = played.accumulation;

  const ModelConfig& m = recipe.model;
  const double tokens = double(recipe.train.global_batch * recipe.train.seq_len);
  plan.tokens_per_s = tokens / plan.step_s;
  // Ranks of one machine have its peak together.
  const double num_whole = costs.is_shared()
                               ? std::ceil(double(recipe.mesh.size()) / cluster.hardware.devices_per_node)
                               : recipe.mesh.size();
  const double peak = cluster.hardware.peak(matmul_type(recipe.train.precision)) * num_whole;
  const double per_token = m.flops_per_token(recipe.train.seq_len);
  int64_t width = 0;  // of the queries of all layers
  for (int64_t i = 0; i < m.layers; ++i) width += m.attends(i) ? m.heads * m.head_dim_of(i) : 0;
  const double causal = 6.0 * double(width) * double(recipe.train.seq_len);
  if (peak > 0) {
    plan.mfu = plan.tokens_per_s * per_token / peak;
    plan.mfu_whole = plan.tokens_per_s * (per_token + causal) / peak;
  }
  return plan;
}

std::string StepPlan::bound() const {
  struct Part {
    double seconds;
    std::string text;
  };
  std::vector<Part> parts = {{time.matmul_s, "compute: matrix products"},
                             {time.attention_s, "compute: attention"},
                             {time.memory_s, "memory bandwidth: norms, activations and other small kernels"},
                             {time.update_s, "memory bandwidth: the optimizer's update"},
                             {time.bubble_s + time.idle_s, "the pipeline's bubble"}};
  for (int axis = 0; axis < kNumAxes; ++axis)
    parts.push_back({time.exposed_s[size_t(axis)], fmt::format("the link: collectives of {}", name_of(Axis(axis)))});
  const Part& most = *std::ranges::max_element(parts, {}, &Part::seconds);
  return fmt::format("{} take {:.0f}% of the step", most.text, 100 * most.seconds / step_s);
}

}  // namespace weft::plan
