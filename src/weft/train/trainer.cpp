// Trainer: the step.
#include "weft/train/trainer.h"

#include <cmath>

#include "weft/optim/grad_norm.h"
#include "weft/train/pass_of.h"

namespace weft {

Trainer::Trainer(Context& context, Communicator& ranks, const Recipe& recipe, const BatchSource& batches)
    : context_(context),
      ranks_(ranks),
      recipe_(recipe),
      batches_(batches),
      model_(recipe.model),
      scaler_(recipe.train.precision == Precision::fp16) {
  model_.set_recompute({recipe.train.recompute_every});
  model_.allocate(context_, recipe.dtype());
  model_.initialize(context_, recipe.train.seed);
  params_ = model_.params();
  data_parallel_ = std::make_unique<DataParallel>(context_, ranks_, model_.param_groups());
  optimizer_ = std::make_unique<AdamW>(context_, params_, recipe.optimizer.adamw, recipe.train.seed);
  scalar_ = context_.empty(DType::f64, {1});
  loss_dy_ = context_.empty(DType::f32, {1});
  context_.kernels.fill(context_.stream, loss_dy_, 1);
}

double Trainer::forward_backward(int64_t micro_batch, double grad_scale, bool sum_gradients) {
  const TrainConfig& t = recipe_.train;
  // Rows of the global batch: rank by rank, and within a rank micro-batch by micro-batch.
  const int64_t first_row = (ranks_.rank() * t.accumulation + micro_batch) * t.micro_batch;
  batches_.fill(next_step_, int32_t(first_row), int32_t(t.micro_batch), batch_);
  Pass pass = pass_of(batch_, first_row * t.seq_len, spans_);
  pass.is_training = true;
  pass.seed = t.seed;
  pass.step = next_step_;
  data_parallel_->begin_micro_batch(sum_gradients && micro_batch + 1 == t.accumulation);
  tape_.clear();
  context_.tape = &tape_;
  const Var loss = model_.loss(context_, pass, batch_.targets.data(), float(grad_scale), *data_parallel_);
  tape_.backward(loss, loss_dy_);
  context_.tape = nullptr;
  return is_meta() ? 0 : double(*loss.value.data<float>());
}

double Trainer::sum_over_ranks(double value) {
  if (is_meta()) return value;
  *scalar_.data<double>() = value;
  ranks_.all_reduce(scalar_);
  return *scalar_.data<double>();
}

StepResult Trainer::step() {
  const TrainConfig& t = recipe_.train;
  StepResult result{.lr = recipe_.optimizer.schedule.at(next_step_), .num_tokens = t.global_batch * t.seq_len};
  const double num_targets = double(std::max<int64_t>(batches_.num_targets(next_step_), 1));
  double loss_sum = 0;
  for (int64_t i = 0; i < t.accumulation; ++i) loss_sum += forward_backward(i, scaler_.scale() / num_targets, true);
  data_parallel_->finish();
  result.loss = sum_over_ranks(loss_sum) / num_targets;
  result.was_skipped = !update(result);
  context_.stream.level_scratch();
  ++next_step_;
  return result;
}

// Whether the weights were updated.
bool Trainer::update(StepResult& result) {
  const GradNorm norm = grad_norm(context_, params_);
  result.grad_norm = norm.value / scaler_.scale();
  const bool is_finite = !norm.not_finite && std::isfinite(result.loss);
  const bool may_skip = scaler_.is_on() || recipe_.train.on_not_finite == OnNotFinite::skip;
  if (!is_finite && !may_skip) stop_not_finite(result.loss);
  scaler_.update(!is_finite);
  if (!is_finite) {
    for (Param* p : params_) p->clear_grad();
    return false;
  }
  const double clip = recipe_.optimizer.clip;
  const double factor = clip > 0 && result.grad_norm > clip ? clip / result.grad_norm : 1;
  optimizer_->step(result.lr, factor / (scaler_.is_on() ? scaler_.scale() : 1));
  return true;
}

// Runs the step's forward and backward once more without summing over ranks (it is deterministic), to say whose
// numbers broke.
void Trainer::stop_not_finite(double loss) {
  for (Param* p : params_) p->clear_grad();
  double local_loss = 0;
  for (int64_t i = 0; i < recipe_.train.accumulation; ++i) local_loss += forward_backward(i, 1, false);
  const GradNorm norm = grad_norm(context_, params_);
  const bool is_culprit = norm.not_finite || !std::isfinite(local_loss);
  // The lowest rank with a broken number speaks; the others stop with it.
  const Tensor first = context_.empty(DType::i64, {1});
  *first.data<int64_t>() = is_culprit ? ranks_.rank() : ranks_.size();
  ranks_.all_reduce(first, Reduction::min);
  const int64_t culprit = *first.data<int64_t>();
  if (culprit != ranks_.rank() && culprit < ranks_.size())
    throw AbortedError("rank {} met a number that is not finite at step {}", culprit, next_step_ + 1);
  throw Error(
      "step {}: {} on rank {} (loss {}); lower optimizer.lr, or write train.on_not_finite = \"skip\" to leave "
      "such steps out",
      next_step_ + 1,
      norm.not_finite ? "the gradient of " + norm.not_finite->name + " is not finite" : "the loss is not finite",
      ranks_.rank(), loss);
}

}  // namespace weft
