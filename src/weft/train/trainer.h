// Trainer: one rank's part of training on any mesh: forward, backward, gradient sum, clipping, update.
#pragma once
#include <map>
#include <memory>

#include "weft/data/batch_source.h"
#include "weft/optim/grad_norm.h"
#include "weft/optim/loss_scaler.h"
#include "weft/optim/optimizer.h"
#include "weft/parallel/data/data_parallel.h"
#include "weft/parallel/pipeline/pipeline.h"
#include "weft/train/far_memories.h"
#include "weft/train/micro_batches.h"
#include "weft/train/model_parts.h"
#include "weft/train/objective.h"
#include "weft/train/recipe.h"

namespace weft {

struct StepResult {
  double loss = 0;                 // nats per token, over the global batch
  std::optional<double> mtp_loss;  // the same of the token further on, where the model has a part for that
  double grad_norm = 0;            // before clipping
  double lr = 0;
  int64_t num_tokens = 0;    // rows x seq_len of the micro-batches of all data-parallel ranks
  bool was_left = false;     // somebody asked to stop before there was anything to train on: nothing else is known
  bool was_skipped = false;  // a gradient was not finite: the loss scale was halved, or the recipe says to go on
  double waited_s = 0;       // of this rank, for other stages of a pipeline
  // Of the layer where they are the most, times an even share: what the busiest expert took of the step's tokens; and
  // the busiest rank of any pass, where experts lie on several.
  std::optional<double> expert_load, expert_rank_load;
};

// A Trainer belongs to one thread. All ranks call the same functions in the same order. In the steady state a step
// allocates nothing.
class Trainer {
 public:
  // The recipe's model must be complete (set_vocab). All arguments outlive the trainer. Over meta kernels and memory
  // a step computes nothing and takes the memory that it would take.
  Trainer(Context& context, Communicator& world, const Recipe& recipe, const BatchSource& batches);
  ~Trainer();

  // Trains on the batch of `next_step()`, which is a pure function of the seed and the step.
  // Throws Error naming step, rank and parameter when a loss or gradient is not finite and the recipe says to stop.
  StepResult step();
  int64_t next_step() const { return next_step_; }
  void set_next_step(int64_t step) { next_step_ = step; }

  // This rank's part of the summed loss of a batch of `rows` rows: without a tape and without dropout. Every rank of
  // a data-parallel index gives the same batch.
  double evaluate(const Batch& batch, bool uses_adapters = true);
  // What steps train for from now on; null: the cross-entropy of targets. It outlives the trainer.
  void set_objective(Objective* objective) { objective_ = objective; }
  // Where the tokens of steps go to experts from now on, which it hears of or says; null: the model alone says.
  void set_routing(RoutingReplay* routing) { micro_batches_.set_routing(routing); }

  const Mesh& mesh() const { return mesh_; }
  // Whether this rank's part of a loss counts: one rank of those that compute the same has it.
  bool counts_loss() const { return mesh_.place().pp == loss_rank_ && mesh_.place().tp == 0; }
  ModelParts& model() { return model_; }
  Context& context() { return context_; }
  Optimizer& optimizer() { return *optimizer_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  // What this rank keeps of weights that are not trained, as the optimizer owns the others.
  std::span<const Owned> frozen() const { return frozen_; }
  LossScaler& loss_scaler() { return scaler_; }
  const LossScaler& loss_scaler() const { return scaler_; }
  FarStats far_stats() const { return far_.stats(); }
  int64_t host_bytes() const { return far_.host_bytes(); }  // of these, on the host
  // Told about every action of a pipeline, as it begins and as it ends.
  void observe_actions(std::function<void(const Action&, bool is_begin)> observer) {
    observer_ = std::move(observer);
  }
  // What is kept beside what the optimizer owns and saved with it: the biases of routers, in the layout of Owned.
  std::vector<Owned> router_biases() const;
  // After the optimizer's masters, or what is frozen, were written from elsewhere.
  void weights_changed();

 private:
  class PartStage;
  void note_place(const Action& action) noexcept;
  void run_micro_batches(double grad_scale);
  const Schedule& schedule_of(int num_micro_batches);
  void add_losses();
  double sum_of(std::vector<Tensor>& losses);
  double sum_over_ranks(double value);
  bool is_meta() const { return context_.stream.allocator().device() == Device::meta; }
  bool update(StepResult& result);
  void count_experts(StepResult& result);
  double busiest_expert();
  [[noreturn]] void stop_not_finite(double loss);

  Context& context_;
  Communicator& world_;
  const Recipe& recipe_;
  Mesh mesh_;
  Schedule schedule_;
  std::map<int, Schedule> shorter_;  // by their number of micro-batches, of steps that have fewer
  int loss_rank_;                    // along pp
  ModelParts model_;
  FarMemories far_;
  std::unique_ptr<DataParallel> data_parallel_;
  MicroBatches micro_batches_;
  std::vector<std::unique_ptr<PartStage>> stages_;
  Pipeline pipeline_;
  std::unique_ptr<Optimizer> optimizer_;
  GradNormMeter grad_norm_;
  std::vector<Owned> frozen_;
  LossScaler scaler_;
  std::vector<RouterBias*> router_biases_;  // of the layers with experts, or none
  std::vector<ExpertUse*> expert_uses_;     // of these
  Tensor chosen_;   // [layers with experts, E] i64: how often each expert was chosen in the step
  Tensor loads_;    // [2] f64, for the busiest over ranks
  Tensor scalar_;   // [1] f64, for sums over ranks
  Tensor loss_dy_;  // [1] f32: the gradient of the loss is wanted
  int64_t next_step_ = 0;
  float grad_scale_ = 0;
  std::vector<Tensor> losses_;          // of the passes under way: [1] each
  std::vector<Tensor> further_losses_;  // the same of the token further on, where the model says any
  double loss_sum_ = 0, further_loss_sum_ = 0;
  Objective* objective_ = nullptr;
  std::function<void(const Action&, bool)> observer_;
};

}  // namespace weft
