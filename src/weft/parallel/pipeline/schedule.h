// Schedule: what each rank of a pipeline does in one step and in which order, as data.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class ActionKind : uint8_t {
  forward,
  backward,  // both halves
  backward_input,
  backward_weight,
};
std::string_view name_of(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;  // of all ranks: 0 .. num_stages() - 1
  int micro_batch = 0;
  bool operator==(const Action&) const = default;
};
std::string describe(const Action& action);  // "forward stage 3 micro-batch 0"

// gpipe        all forwards, then all backwards (Huang et al., 2019)
// one_f_one_b  a forward, then a backward, once the pipeline is full (PipeDream-flush; Narayanan et al., 2021)
// interleaved  the same with several stages a rank, which divides the bubble (Narayanan et al., 2021)
// zb_h1        1F1B whose weight halves fill the bubble at the end (Qi et al., "Zero Bubble Pipeline Parallelism",
// 2023) zbv          stages go down the ranks and up again; no bubble where the three parts cost the same (same
// paper, and
//              Qi et al., "Pipeline Parallelism with Controllable Memory", 2024)
// dualpipe_v   DualPipe cut in half (DeepSeek-AI, 2025), a forward and a backward one after the other, not overlapped
enum class ScheduleKind : uint8_t { gpipe, one_f_one_b, interleaved, zb_h1, zbv, dualpipe_v };
std::string_view name_of(ScheduleKind kind);  // gpipe, 1f1b, interleaved, zb-h1, zbv, dualpipe-v
std::optional<ScheduleKind> schedule_kind(std::string_view name);
std::vector<std::string> schedule_names();
int default_virtual_stages(ScheduleKind kind);

struct PipelineShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int num_ranks = 1;
  int virtual_stages = 1;  // per rank: 2 and more for interleaved, 2 for zbv and dualpipe_v, else 1
  int num_micro_batches = 1;

  int num_stages() const { return num_ranks * virtual_stages; }
  // zbv, dualpipe_v: rank r holds stages r and 2 * num_ranks - 1 - r. Else stage % num_ranks.
  int rank_of(int stage) const;
  bool operator==(const PipelineShape&) const = default;
};

// Messages between ranks follow from the actions: the forward of a stage sends its result to the rank of the next
// stage, the input half of a backward (or both halves in one) to the rank of the stage before; none is sent between
// stages of one rank. Sends must not wait for their receiver: only gpipe would survive that. The messages for one
// stage in one direction are taken in the order in which they are sent, those of a pair of ranks may not be (zbv,
// dualpipe_v), so a tag says stage and direction.
class Schedule {
 public:
  // One list for each rank, in the order in which it is run.
  Schedule(const PipelineShape& shape, std::vector<std::vector<Action>> actions);

  const PipelineShape& shape() const { return shape_; }
  int num_ranks() const { return shape_.num_ranks; }
  int num_stages() const { return shape_.num_stages(); }
  int rank_of(int stage) const { return shape_.rank_of(stage); }
  std::span<const Action> actions(int rank) const { return actions_[size_t(rank)]; }

 private:
  PipelineShape shape_;
  std::vector<std::vector<Action>> actions_;
};

// Any number of micro-batches will do. One rank runs each micro-batch forward and backward, whatever the kind.
// Throws UsageError naming mesh.pp, mesh.schedule, mesh.virtual_stages or train.accumulation.
Schedule make_schedule(const PipelineShape& shape);

}  // namespace weft
