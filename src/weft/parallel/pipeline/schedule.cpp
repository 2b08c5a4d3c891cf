// Schedule: names, placement of stages, and the choice of a generator.
#include "weft/parallel/pipeline/schedule.h"

#include <array>

#include "weft/base/error.h"
#include "weft/parallel/pipeline/schedule_kinds.h"

namespace weft {
namespace {

using Generator = std::vector<Action> (*)(const PipelineShape&, int rank);

struct Kind {
  std::string_view name;
  Generator actions_of;
};

// In the order of ScheduleKind.
constexpr std::array<Kind, 6> kKinds = {{{"gpipe", gpipe_actions},
                                         {"1f1b", one_f_one_b_actions},
                                         {"interleaved", interleaved_actions},
                                         {"zb-h1", zb_h1_actions},
                                         {"zbv", zbv_actions},
                                         {"dualpipe-v", dualpipe_v_actions}}};

bool is_v_shaped(ScheduleKind kind) { return kind == ScheduleKind::zbv || kind == ScheduleKind::dualpipe_v; }

void check_shape(const PipelineShape& shape) {
  if (shape.num_ranks < 1) throw UsageError("mesh.pp: {} ranks; write 1 or more", shape.num_ranks);
  if (shape.num_micro_batches < 1)
    throw UsageError("train.accumulation: {} micro-batches; write 1 or more", shape.num_micro_batches);
  const std::string_view name = name_of(shape.kind);
  if (shape.num_ranks == 1 && shape.virtual_stages < default_virtual_stages(shape.kind))
    throw UsageError("mesh.schedule = \"{}\" needs mesh.pp of at least 2: write that, or mesh.schedule = \"1f1b\"",
                     name);
  if (shape.kind == ScheduleKind::interleaved) {
    if (shape.virtual_stages < 2)
      throw UsageError(
          "mesh.virtual_stages: {}; \"interleaved\" needs 2 or more stages on each rank; write 2, or "
          "mesh.schedule = \"1f1b\"",
          shape.virtual_stages);
  } else if (shape.virtual_stages != default_virtual_stages(shape.kind)) {
    throw UsageError("mesh.virtual_stages: {}; \"{}\" has exactly {} on each rank; write {}, or {}",
                     shape.virtual_stages, name, default_virtual_stages(shape.kind),
                     default_virtual_stages(shape.kind),
                     shape.virtual_stages >= 2 ? "mesh.schedule = \"interleaved\"" : "mesh.schedule = \"zb-h1\"");
  }
}

std::vector<Action> one_rank_actions(const PipelineShape& shape) {
  std::vector<Action> actions;
  for (int m = 0; m < shape.num_micro_batches; ++m) {
    for (int s = 0; s < shape.num_stages(); ++s) actions.push_back({ActionKind::forward, s, m});
    for (int s = shape.num_stages(); s-- > 0;) actions.push_back({ActionKind::backward, s, m});
  }
  return actions;
}

}  // namespace

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "forward";
    case ActionKind::backward: return "backward";
    case ActionKind::backward_input: return "backward_input";
    case ActionKind::backward_weight: return "backward_weight";
  }
  return "?";
}

std::string describe(const Action& action) {
  return fmt::format("{} stage {} micro-batch {}", name_of(action.kind), action.stage, action.micro_batch);
}

std::string_view name_of(ScheduleKind kind) { return kKinds[size_t(kind)].name; }

std::optional<ScheduleKind> schedule_kind(std::string_view name) {
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (kKinds[i].name == name) return ScheduleKind(i);
  return std::nullopt;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

int default_virtual_stages(ScheduleKind kind) {
  return kind == ScheduleKind::interleaved || is_v_shaped(kind) ? 2 : 1;
}

int PipelineShape::rank_of(int stage) const {
  if (is_v_shaped(kind)) return stage < num_ranks ? stage : 2 * num_ranks - 1 - stage;
  return stage % num_ranks;
}

Schedule::Schedule(const PipelineShape& shape, std::vector<std::vector<Action>> actions)
    : shape_(shape), actions_(std::move(actions)) {
  check(int(actions_.size()) == shape.num_ranks, "a schedule of {} ranks has {} lists of actions", shape.num_ranks,
        actions_.size());
}

Schedule make_schedule(const PipelineShape& shape) {
  check_shape(shape);
  if (shape.num_ranks == 1) return {shape, {one_rank_actions(shape)}};
  std::vector<std::vector<Action>> actions;
  for (int rank = 0; rank < shape.num_ranks; ++rank)
    actions.push_back(kKinds[size_t(shape.kind)].actions_of(shape, rank));
  return {shape, std::move(actions)};
}

}  // namespace weft
