// Pipeline: runs one rank's actions of a schedule, and moves activations and their gradients between stages.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/parallel/pipeline/schedule.h"
#include "weft/parallel/pipeline/stage.h"

namespace weft {

// What crosses the boundary between stages.
struct Wire {
  DType dtype = DType::f32;
  Shape shape;
};

// One rank without a pipeline is a schedule of one stage: forward and backward in turn. In the steady state nothing
// is allocated.
class Pipeline {
 public:
  // stages: this rank's, in the order of their numbers. when: of the tapes, for schedules that do not say. Everything
  // outlives this.
  Pipeline(Context& context, Communicator& group, const Schedule& schedule, std::vector<Stage*> stages, Wire wire,
           WeightGrads when);

  // All micro-batches of a step. loss_dy: the gradient that the losses are run backward from.
  void run(const Tensor& loss_dy) { run(loss_dy, schedule_); }
  // The same by a schedule that differs in the number of micro-batches only.
  void run(const Tensor& loss_dy, const Schedule& schedule);
  // One forward pass through all stages, without a tape. rows: of the residual stream on a wire.
  void run_forward(int64_t rows);
  // The seconds of the last run in which this rank waited for another stage.
  double waited_seconds() const { return waited_seconds_; }
  // Called before each action, with what it is: for the trace and for those who ask where a rank is.
  void set_observer(std::function<void(const Action&, bool is_begin)> observer) { observer_ = std::move(observer); }

 private:
  struct Flight {
    std::unique_ptr<Tape> tape;
    Var x, y;
    int stage = -1, micro_batch = -1;
  };
  Stage& stage(int number) const;
  bool is_last(int stage) const { return stage + 1 == schedule_.num_stages(); }
  Flight& take_off(int stage, int micro_batch);
  Flight& find(int stage, int micro_batch);
  void land(Flight& flight);
  void forward(const Action& action);
  void backward_input(const Action& action, const Tensor& loss_dy);
  void send(const Tensor& t, int to_stage, int tag);
  Tensor receive(int from_stage, int tag, int64_t rows = 0);  // 0: as the wire says
  int tag_of(int to_stage, int micro_batch, bool is_gradient) const;

  Context& context_;
  Communicator& group_;
  const Schedule& schedule_;
  std::vector<Stage*> stages_;
  std::vector<int> numbers_;
  Wire wire_;
  WeightGrads when_;
  std::vector<Flight> flights_;                  // kept with their tapes for the next
  std::vector<std::pair<int, Tensor>> at_hand_;  // between two stages of this rank, by tag
  std::function<void(const Action&, bool)> observer_;
  double waited_seconds_ = 0;
};

}  // namespace weft
