// Schedules whose stages go down the ranks and up again, so that the last stage is beside the first: ZBV, DualPipe-V.
#include <algorithm>
#include <array>
#include <deque>

#include "weft/parallel/pipeline/schedule_kinds.h"

namespace weft {
namespace {

// The list of one rank: each half of the V takes its micro-batches in order.
class VRank {
 public:
  VRank(int num_ranks, int rank) : stages_{rank, 2 * num_ranks - 1 - rank} {}

  void forward(int half) { add(ActionKind::forward, half, forwards_[size_t(half)]++); }
  void backward(int half) { add(ActionKind::backward, half, backwards_[size_t(half)]++); }
  void backward_input(int half) {
    const int micro_batch = backwards_[size_t(half)]++;
    add(ActionKind::backward_input, half, micro_batch);
    waiting_.push_back({ActionKind::backward_weight, stages_[size_t(half)], micro_batch});
  }
  // The weight half that has waited longest, of this half of the V or of either.
  void backward_weight(int half) { take(std::ranges::find(waiting_, stages_[size_t(half)], &Action::stage)); }
  void backward_weight() { take(waiting_.begin()); }
  void backward_in_halves(int half) { backward_input(half), backward_weight(half); }

  int forwards(int half) const { return forwards_[size_t(half)]; }
  std::vector<Action> finish(int num_micro_batches) {
    while (!waiting_.empty()) backward_weight();
    return without_padding(std::move(actions_), num_micro_batches);
  }

 private:
  void add(ActionKind kind, int half, int micro_batch) {
    actions_.push_back({kind, stages_[size_t(half)], micro_batch});
  }
  void take(std::deque<Action>::iterator weight) {
    actions_.push_back(*weight);
    waiting_.erase(weight);
  }

  std::array<int, 2> stages_, forwards_{}, backwards_{};
  std::deque<Action> waiting_;
  std::vector<Action> actions_;
};

}  // namespace

// The figure of Qi et al., 2024, as phases: it repeats F0 B0 W0 F1 B1 W1 once the V is full, which takes
// 2 * num_ranks - 1 micro-batches.
std::vector<Action> zbv_actions(const PipelineShape& shape, int rank) {
  const int ranks = shape.num_ranks, count = std::max(shape.num_micro_batches, 2 * ranks - 1);
  VRank v(ranks, rank);
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) v.forward(0);
  for (int i = 0; i < rank; ++i) v.forward(1), v.forward(0);
  for (int i = 0; i < ranks - rank; ++i) v.forward(1), v.backward_in_halves(1);
  while (v.forwards(1) < count) {
    if (v.forwards(0) < count) v.forward(0);
    v.backward_in_halves(0);
    v.forward(1);
    v.backward_in_halves(1);
  }
  for (int i = 0; i < rank; ++i) v.backward_input(0), v.backward_input(1);
  for (int i = 0; i < ranks - rank; ++i) v.backward_in_halves(0);
  return v.finish(shape.num_micro_batches);
}

// The eight steps of DeepSeek's description, which need 2 * num_ranks micro-batches.
std::vector<Action> dualpipe_v_actions(const PipelineShape& shape, int rank) {
  const int ranks = shape.num_ranks, count = std::max(shape.num_micro_batches, 2 * ranks), after = ranks - 1 - rank;
  VRank v(ranks, rank);
  for (int i = 0; i < 2 * after; ++i) v.forward(0);
  for (int i = 0; i <= rank; ++i) v.forward(0), v.forward(1);
  for (int i = 0; i < after; ++i) v.backward_in_halves(1), v.forward(1);
  for (int i = 0; i < count - 2 * ranks + rank + 1; ++i) v.forward(0), v.backward(1), v.forward(1), v.backward(0);
  for (int i = 0; i < after; ++i) v.backward(1), v.forward(1), v.backward(0);
  // From the middle of the turn on only input halves: the weight halves fill what is left.
  for (int i = 0; i < 2 * (rank + 1); ++i) {
    const int half = i % 2 == 0 ? 1 : 0;
    i < rank + 1 ? v.backward(half) : v.backward_input(half);
  }
  for (int i = 0; i < after; ++i) v.backward_weight(), v.backward_input(0);
  return v.finish(shape.num_micro_batches);
}

}  // namespace weft
