// RoughPlanner: four small steps for each way to cut a layer, and for each kind of layer.
#include "weft/plan/rough.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "weft/base/error.h"
#include "weft/plan/on_all_cores.h"

namespace weft::plan {
namespace {

// Micro-batches that the first stage holds at a time, in whole stages of a rank; and the part of p - 1 micro-batches
// that a rank waits. Sources: Narayanan et al., 2021; Qi et al., 2023 (ZB-H1: a third of the bubble of 1F1B).
struct PipelineShares {
  double in_flight = 1, bubble = 0;
};
PipelineShares shares_of(const MeshConfig& mesh, double micro_batches) {
  const double p = mesh.shape.pp, v = mesh.virtual_stages;
  if (mesh.shape.pp == 1) return {};
  switch (mesh.schedule) {
    case ScheduleKind::gpipe: return {micro_batches, p - 1};
    case ScheduleKind::one_f_one_b: return {std::min(micro_batches, p), p - 1};
    case ScheduleKind::interleaved: return {std::min(micro_batches, p) * (1 + (p - 1) / (p * v)), (p - 1) / v};
    case ScheduleKind::zb_h1: return {std::min(micro_batches, p), (p - 1) / 3};
    case ScheduleKind::zbv:
    case ScheduleKind::dualpipe_v: return {std::min(micro_batches, p), 0};
  }
  return {};
}

// What a layer has; windows aside, whose attention is as that of the others here, unless its heads are not.
struct LayerKind {
  bool is_recurrent, has_mixer, has_mlp, has_experts, is_global, shares_keys;
  auto operator<=>(const LayerKind&) const = default;
};
std::map<LayerKind, int64_t> kinds_of(const ModelConfig& c) {
  std::map<LayerKind, int64_t> counts;
  const bool has_global = c.global_head_dim || c.global_kv_heads || c.global_values_are_keys;
  for (int64_t i = 0; i < c.layers; ++i)
    ++counts[{c.is_recurrent(i), c.has_mixer(i), c.has_mlp(i), c.has_experts(i), has_global && c.is_global(i),
              c.shares_keys(i)}];
  return counts;
}
// The model with up to `layers` layers of this kind and no others.
ModelConfig of_kind(ModelConfig c, const LayerKind& kind, int64_t layers) {
  if (c.has_states()) c.attention_every = kind.is_recurrent ? layers + 1 : 1;
  c.first_dense_layers = kind.has_experts ? 0 : layers;
  c.global_layers.clear(), c.unrotated_layers.clear();
  if (kind.is_global) c.first_local_layer = layers;
  // As if keys were made, which are few, so that a probe needs no layer of another kind.
  if (kind.shares_keys && c.shared_kv_ffn > 0) c.ffn = c.shared_kv_ffn;
  c.shared_kv_layers = c.shared_kv_ffn = 0;
  c.attention_layers.clear(), c.mlp_layers.clear(), c.expert_layers.clear();
  for (int64_t i = 0; c.block == BlockKind::single && kind.has_mlp && i < layers; ++i) c.mlp_layers.push_back(i);
  return c;
}

}  // namespace

std::vector<std::variant<Rough, Impossible>> RoughPlanner::estimate(std::span<const Recipe> recipes) const {
  std::vector<const Recipe*> distinct;
  std::map<std::string, size_t> places;
  std::vector<size_t> probe_of;  // each recipe
  for (const Recipe& r : recipes) {
    const auto [at, is_new] = places.emplace(key_of(r), distinct.size());
    if (is_new) distinct.push_back(&r);
    probe_of.push_back(at->second);
  }
  std::vector<Probed> probes(distinct.size());
  on_all_cores(distinct.size(), [&](size_t i) {
    try {
      probes[i] = measure(*distinct[i]);
    } catch (const UsageError& e) {
      probes[i] = Impossible{e.what()};
    }
  });
  std::vector<std::variant<Rough, Impossible>> all;
  for (size_t i = 0; i < recipes.size(); ++i) {
    const Probed& probed = probes[probe_of[i]];
    if (const auto* impossible = std::get_if<Impossible>(&probed))
      all.emplace_back(*impossible);
    else
      all.emplace_back(continued(std::get<Probe>(probed), recipes[i]));
  }
  return all;
}

Rough RoughPlanner::continued(const Probe& probe, const Recipe& recipe) {
  const auto layers = double(recipe.model.layers), p = double(recipe.mesh.shape.pp);
  const auto micro_batches = double(recipe.train.accumulation);
  const PipelineShares shares = shares_of(recipe.mesh, micro_batches);
  const double held = std::ceil(layers / p);
  const double stage_s = (layers * probe.layer_s + probe.ends_s) / p;
  Rough rough;
  rough.step_s = (micro_batches + shares.bubble) * stage_s + held * probe.fixed_layer_s + probe.fixed_ends_s;
  const double ends = p > 1 ? 0.5 : 1;
  rough.peak_bytes = held * (probe.state_layer + shares.in_flight * probe.activations_layer) +
                     ends * probe.state_ends + probe.activations_ends;
  return rough;
}

std::string RoughPlanner::key_of(const Recipe& r) {
  const MeshShape& s = r.mesh.shape;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", s.replicate, s.shard, s.cp, s.tp, s.ep, int(r.mesh.zero),
                     r.mesh.sequence_parallel, int(r.mesh.cp_mode), int(r.train.recompute.what),
                     r.train.recompute.every, r.train.micro_batch);
}

RoughPlanner::Probe RoughPlanner::measure(const Recipe& recipe) const {
  constexpr int64_t kMost = 2;  // layers of a probe
  Probe mean;
  for (const auto& [kind, count] : kinds_of(recipe.model)) {
    Recipe r = recipe;
    r.model = of_kind(recipe.model, kind, kMost);
    const Probe p = measure_alike(r);
    const double share = double(count) / double(recipe.model.layers);
    for (double Probe::*part : {&Probe::layer_s, &Probe::ends_s, &Probe::fixed_layer_s, &Probe::fixed_ends_s,
                                &Probe::state_layer, &Probe::state_ends, &Probe::activations_layer})
      mean.*part += share * p.*part;
    mean.activations_ends = std::max(mean.activations_ends, p.activations_ends);
  }
  return mean;
}

RoughPlanner::Probe RoughPlanner::measure_alike(const Recipe& recipe) const {
  Recipe r = recipe;
  r.mesh.shape.pp = 1, r.mesh.virtual_stages = 1, r.mesh.schedule = ScheduleKind::one_f_one_b;
  r.mesh.layers_per_stage = {};
  const CostModel costs(cluster_.hardware, r.mesh.shape, stack_);
  double seconds[2][2], peak[2] = {}, state[2] = {};
  std::optional<ModelConfig> teacher = teacher_;
  for (int layers = 0; layers < 2; ++layers)
    for (int batches = 0; batches < 2; ++batches) {
      r.model.layers = layers + 1;
      r.train.accumulation = batches + 2;
      r.train.global_batch = r.train.micro_batch * r.mesh.shape.dp() * r.train.accumulation;
      // A teacher grows with the model.
      if (teacher)
        teacher->layers = std::max<int64_t>(
            1, std::llround(double(teacher_->layers) * double(r.model.layers) / double(recipe.model.layers)));
      const std::vector<StepTrace> traces = {
          trace_step(r, 0, {.teacher = teacher ? &*teacher : nullptr, .expert_load = stack_.expert_load})};
      seconds[layers][batches] = simulate(traces, costs).step_s;
      peak[layers] = double(traces[0].peak.split.total()), state[layers] = double(traces[0].state_bytes);
    }
  Probe p;
  const double one = seconds[0][1] - seconds[0][0], two = seconds[1][1] - seconds[1][0];
  const double fixed_one = seconds[0][0] - 2 * one, fixed_two = seconds[1][0] - 2 * two;
  p.layer_s = two - one, p.ends_s = one - p.layer_s;
  p.fixed_layer_s = fixed_two - fixed_one, p.fixed_ends_s = fixed_one - p.fixed_layer_s;
  p.state_layer = state[1] - state[0], p.state_ends = state[0] - p.state_layer;
  p.activations_layer = std::max(0.0, peak[1] - peak[0] - p.state_layer);
  p.activations_ends = peak[0] - state[0] - p.activations_layer;
  return p;
}

}  // namespace weft::plan
