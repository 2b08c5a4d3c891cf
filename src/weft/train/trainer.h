// Trainer: one rank's part of training: forward, backward, gradient sum, clipping, update.
#pragma once
#include <memory>

#include "weft/comm/communicator.h"
#include "weft/data/batch_source.h"
#include "weft/models/decoder.h"
#include "weft/optim/adamw.h"
#include "weft/optim/loss_scaler.h"
#include "weft/parallel/data_parallel.h"
#include "weft/train/recipe.h"

namespace weft {

struct StepResult {
  double loss = 0;       // nats per token, over the global batch
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t num_tokens = 0;    // rows x seq_len of the global batch
  bool was_skipped = false;  // a gradient was not finite, and the recipe says to go on
};

// A Trainer belongs to one thread. All ranks call the same functions in the same order. In the steady state a step
// allocates nothing.
class Trainer {
 public:
  // The recipe's model must be complete (set_vocab). All arguments outlive the trainer. Over meta kernels and memory
  // a step computes nothing and takes the memory that it would take.
  Trainer(Context& context, Communicator& ranks, const Recipe& recipe, const BatchSource& batches);

  // Trains on the batch of `next_step()`, which is a pure function of the seed and the step.
  // Throws Error naming step, rank and parameter when a loss or gradient is not finite and the recipe says to stop.
  StepResult step();
  int64_t next_step() const { return next_step_; }
  void set_next_step(int64_t step) { next_step_ = step; }
  Decoder& model() { return model_; }
  AdamW& optimizer() { return *optimizer_; }
  LossScaler& loss_scaler() { return scaler_; }

 private:
  double forward_backward(int64_t micro_batch, double grad_scale, bool sum_gradients);
  double sum_over_ranks(double value);
  bool is_meta() const { return context_.stream.allocator().device() == Device::meta; }
  bool update(StepResult& result);
  [[noreturn]] void stop_not_finite(double loss);

  Context& context_;
  Communicator& ranks_;
  const Recipe& recipe_;
  const BatchSource& batches_;
  Decoder model_;
  std::vector<Param*> params_;
  std::unique_ptr<DataParallel> data_parallel_;
  std::unique_ptr<AdamW> optimizer_;
  LossScaler scaler_;
  Tape tape_;
  Batch batch_;
  std::vector<AttentionSpan> spans_;  // of batch_
  Tensor scalar_;                     // [1] f64, for sums over ranks
  Tensor loss_dy_;                    // [1] f32: the gradient of the loss is wanted
  int64_t next_step_ = 0;
};

}  // namespace weft
