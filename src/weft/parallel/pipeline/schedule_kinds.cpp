// Schedules whose stages go down the ranks: GPipe, 1F1B, interleaved 1F1B and ZB-H1.
#include "weft/parallel/pipeline/schedule_kinds.h"

#include <algorithm>

namespace weft {

std::vector<Action> without_padding(std::vector<Action> actions, int num_micro_batches) {
  std::erase_if(actions, [&](const Action& a) { return a.micro_batch >= num_micro_batches; });
  return actions;
}

std::vector<Action> gpipe_actions(const PipelineShape& shape, int rank) {
  std::vector<Action> actions;
  for (int m = 0; m < shape.num_micro_batches; ++m) actions.push_back({ActionKind::forward, rank, m});
  for (int m = 0; m < shape.num_micro_batches; ++m) actions.push_back({ActionKind::backward, rank, m});
  return actions;
}

// As many forwards as there are ranks from here to the last one, then backwards and forwards in turn.
std::vector<Action> one_f_one_b_actions(const PipelineShape& shape, int rank) {
  const int warm_up = std::min(shape.num_micro_batches, shape.num_ranks - rank);
  std::vector<Action> actions;
  for (int m = 0; m < warm_up; ++m) actions.push_back({ActionKind::forward, rank, m});
  for (int m = 0; m < shape.num_micro_batches; ++m) {
    actions.push_back({ActionKind::backward, rank, m});
    if (warm_up + m < shape.num_micro_batches) actions.push_back({ActionKind::forward, rank, warm_up + m});
  }
  return actions;
}

// Micro-batches pass in groups of num_ranks, each group through all of a rank's stages before the next one; backward
// through the stages in reverse. The last group is filled up with micro-batches that do not exist.
std::vector<Action> interleaved_actions(const PipelineShape& shape, int rank) {
  const int ranks = shape.num_ranks, per_group = ranks * shape.virtual_stages;
  const int groups = (shape.num_micro_batches + ranks - 1) / ranks, total = groups * per_group;
  const int warm_up = std::min(total, 2 * (ranks - 1 - rank) + (shape.virtual_stages - 1) * ranks);
  const auto action = [&](ActionKind kind, int k) {
    const int nth_stage = k % per_group / ranks;
    const int chunk = kind == ActionKind::forward ? nth_stage : shape.virtual_stages - 1 - nth_stage;
    return Action{kind, chunk * ranks + rank, k / per_group * ranks + k % ranks};
  };
  std::vector<Action> actions;
  for (int k = 0; k < warm_up; ++k) actions.push_back(action(ActionKind::forward, k));
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) actions.push_back(action(ActionKind::forward, warm_up + k));
    actions.push_back(action(ActionKind::backward, k));
  }
  return without_padding(std::move(actions), shape.num_micro_batches);
}

// 1F1B in which rank r does a micro-batch's weight half r micro-batches after its input half, so that gradients reach
// the ranks before it sooner and the weight halves left over stand where those ranks would have kept it waiting.
std::vector<Action> zb_h1_actions(const PipelineShape& shape, int rank) {
  const int count = shape.num_micro_batches, warm_up = std::min(count, shape.num_ranks - rank);
  std::vector<Action> actions;
  for (int m = 0; m < warm_up; ++m) actions.push_back({ActionKind::forward, rank, m});
  for (int m = 0; m < count; ++m) {
    actions.push_back({ActionKind::backward_input, rank, m});
    if (m >= rank) actions.push_back({ActionKind::backward_weight, rank, m - rank});
    if (warm_up + m < count) actions.push_back({ActionKind::forward, rank, warm_up + m});
  }
  for (int m = std::max(0, count - rank); m < count; ++m) actions.push_back({ActionKind::backward_weight, rank, m});
  return actions;
}

}  // namespace weft
