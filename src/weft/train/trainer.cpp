// Trainer: the step.
#include "weft/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/tensor/host_access.h"
#include "weft/tensor/repeated_step.h"
#include "weft/train/magnitudes.h"
#include "weft/train/make_optimizer.h"

namespace weft {
namespace {

WeightGrads weight_grads_of(const Recipe& recipe) {
  return recipe.mesh.shape.tp > 1 ? WeightGrads::under_collectives : WeightGrads::now;
}

Wire wire_of(const Recipe& recipe) {
  const MeshConfig& m = recipe.mesh;
  const int64_t tokens = recipe.train.micro_batch * recipe.train.seq_len / m.shape.cp;
  return {recipe.dtype(), {tokens / (m.sequence_parallel ? m.shape.tp : 1), recipe.model.residual_width()}};
}

// The world, which moves the stream's tensors from now on.
Communicator& reaching(Stream& stream, Communicator& world) {
  world.use_stream(stream);
  return world;
}

template <class T>
std::vector<Stage*> pointers(const std::vector<std::unique_ptr<T>>& stages) {
  std::vector<Stage*> all;
  for (const auto& s : stages) all.push_back(s.get());
  return all;
}

}  // namespace

// One part of the model as a stage, over the micro-batches of the step or over a batch for evaluation.
class Trainer::PartStage final : public Stage {
 public:
  PartStage(Trainer& trainer, Decoder& part, std::unique_ptr<Brackets> brackets)
      : t_(trainer), part_(part), brackets_(std::move(brackets)) {}

  Var forward(int micro_batch, const Var& x) override {
    Context& context = t_.context_;
    const auto& slot = evaluated_ ? *evaluated_ : t_.micro_batches_.get(t_.next_step_, micro_batch);
    if (!part_.part().has_head) return part_.forward(context, slot.pass, x, *brackets_);
    Var loss = loss_of(context, slot, x);
    t_.losses_.push_back(loss.value);
    return loss;
  }
  void landed(int micro_batch) override { t_.micro_batches_.release(micro_batch); }
  void evaluate_on(const MicroBatches::Slot* slot) { evaluated_ = slot; }

 private:
  Var loss_of(Context& context, const MicroBatches::Slot& slot, const Var& x) {
    Objective* const objective = t_.objective_;
    const float scale = evaluated_ ? 0 : t_.grad_scale_;
    if (!objective) return loss_of_tokens(context, slot, x, scale);
    if (evaluated_) return objective->evaluate(context, part_, slot, x, *brackets_);
    return objective->loss(context, part_, slot, x, scale, *brackets_);
  }

  Var loss_of_tokens(Context& context, const MicroBatches::Slot& slot, const Var& x, float scale) {
    const Batch& b = slot.batch;
    Decoder::Targets targets{b.targets.data()};
    if (!b.next_ids.empty()) targets.next_ids = b.next_ids.data(), targets.further = b.further_targets.data();
    auto [next, further] = part_.losses(context, slot.pass, x, targets, scale, *brackets_);
    if (further) t_.further_losses_.push_back(std::move(further));
    return next;
  }

  Trainer& t_;
  Decoder& part_;
  std::unique_ptr<Brackets> brackets_;
  const MicroBatches::Slot* evaluated_ = nullptr;
};

Trainer::Trainer(Context& context, Communicator& world, const Recipe& recipe, const BatchSource& batches)
    : context_(context),
      world_(world),
      recipe_(recipe),
      mesh_(reaching(context.stream, world), recipe.mesh.shape),
      schedule_(make_schedule({.kind = recipe.mesh.schedule,
                               .num_ranks = recipe.mesh.shape.pp,
                               .virtual_stages = recipe.mesh.virtual_stages,
                               .num_micro_batches = int(recipe.train.accumulation)})),
      loss_rank_(schedule_.rank_of(schedule_.num_stages() - 1)),
      model_(recipe, mesh_, schedule_),
      far_(context, recipe.mesh, world.rank()),
      data_parallel_(std::make_unique<DataParallel>(
          context, mesh_,
          DataParallelOptions{.zero = recipe.mesh.zero,
                              .reshard_after_forward = recipe.mesh.reshard_after_forward,
                              .far_states = far_.optimizer(),
                              .far_values = far_.parameters()},
          model_.param_groups(), model_.shared_group(), recipe.dtype(), recipe.train.seed)),
      micro_batches_(recipe, mesh_, batches, int(model_.parts().size())),
      stages_([&] {
        std::vector<std::unique_ptr<PartStage>> stages;
        size_t first = 0;
        for (const auto& part : model_.parts()) {
          const size_t count = part->param_groups().size();
          stages.push_back(
              std::make_unique<PartStage>(*this, *part, data_parallel_->part(first, count, part->part().has_head)));
          first += count;
        }
        return stages;
      }()),
      pipeline_(context, mesh_.pp(), schedule_, pointers(stages_), wire_of(recipe), weight_grads_of(recipe)),
      optimizer_(make_optimizer(context, recipe.optimizer, data_parallel_->owned())),
      frozen_(data_parallel_->frozen()),
      scaler_(recipe.train.precision == Precision::fp16, recipe.train.first_loss_scale) {
  pipeline_.set_observer([this](const Action& action, bool is_begin) {
    if (is_begin) note_place(action);
    if (observer_) observer_(action, is_begin);
  });
  for (const auto& part : model_.parts()) part->prepare(context_, recipe.dtype());
  for (const auto& part : model_.parts()) {
    for (RouterBias* b : part->router_biases()) router_biases_.push_back(b);
    for (ExpertUse* u : part->expert_uses()) expert_uses_.push_back(u);
  }
  if (!expert_uses_.empty())
    chosen_ = context_.stream.host_memory().empty(DType::i64, {int64_t(expert_uses_.size()), recipe.model.experts});
  loads_ = context_.stream.host_memory().empty(DType::f64, {2});
  scalar_ = context_.stream.host_memory().empty(DType::f64, {1});
  loss_dy_ = context_.empty(DType::f32, {1});
  context_.kernels.fill(context_.stream, loss_dy_, 1);
  if (recipe.model.lora.is_dora) set_magnitudes(recipe, *this);
}

Trainer::~Trainer() = default;

// So that ranks which wait in vain can say where this one is.
void Trainer::note_place(const Action& action) noexcept {
  char text[80];
  const auto end = fmt::format_to_n(text, sizeof text, "{} of stage {}, micro-batch {}", weft::name_of(action.kind),
                                    action.stage, action.micro_batch);
  world_.set_place({text, std::min(end.size, sizeof text)}, next_step_ + 1);
}

const Schedule& Trainer::schedule_of(int num_micro_batches) {
  PipelineShape shape = schedule_.shape();
  if (num_micro_batches == shape.num_micro_batches) return schedule_;
  shape.num_micro_batches = num_micro_batches;
  const auto found = shorter_.find(num_micro_batches);
  return found != shorter_.end() ? found->second
                                 : shorter_.emplace(num_micro_batches, make_schedule(shape)).first->second;
}

void Trainer::run_micro_batches(double grad_scale) {
  grad_scale_ = float(grad_scale), loss_sum_ = further_loss_sum_ = 0;
  const auto count = int(micro_batches_.count(next_step_));
  const RepeatedStep step(context_.stream, this, recipe_.train.micro_batch * count);
  micro_batches_.set_loss_scale(grad_scale_);
  data_parallel_->begin(count);
  pipeline_.run(loss_dy_, schedule_of(count));
  add_losses();
  world_.set_place("the end of the backward pass", next_step_ + 1);
  data_parallel_->finish();
}

double Trainer::evaluate(const Batch& batch, bool uses_adapters) {
  loss_sum_ = 0;
  const MicroBatches::Slot& slot = micro_batches_.evaluation(batch, uses_adapters);
  for (const auto& stage : stages_) stage->evaluate_on(&slot);
  data_parallel_->begin(0);
  pipeline_.run_forward(model_.partition().tensor.tokens(slot.pass.num_tokens).count);
  add_losses();
  data_parallel_->end_evaluation();
  for (const auto& stage : stages_) stage->evaluate_on(nullptr);
  return counts_loss() ? loss_sum_ : 0;
}

// At the end of the passes, so that none of them waits for what a device has queued.
void Trainer::add_losses() {
  loss_sum_ += sum_of(losses_);
  further_loss_sum_ += sum_of(further_losses_);
}

double Trainer::sum_of(std::vector<Tensor>& losses) {
  double sum = 0;
  for (const Tensor& loss : losses)
    if (!is_meta()) sum += double(*on_host(context_.stream, loss).data<float>());
  losses.clear();
  return sum;
}

double Trainer::sum_over_ranks(double value) {
  if (is_meta()) return value;
  *scalar_.data<double>() = value;
  world_.all_reduce(scalar_);
  return *scalar_.data<double>();
}

StepResult Trainer::step() {
  const TrainConfig& t = recipe_.train;
  StepResult result{.lr = recipe_.optimizer.schedule.at(next_step_)};
  const double num_targets = double(std::max<int64_t>(micro_batches_.num_targets(next_step_), 1));
  if (objective_ && !objective_->begin_step(*this, next_step_)) return {.was_left = true};
  run_micro_batches(scaler_.scale() / num_targets);
  result.num_tokens = t.global_batch / t.accumulation * micro_batches_.count(next_step_) * t.seq_len;
  result.loss = sum_over_ranks(counts_loss() ? loss_sum_ : 0) / num_targets;
  if (recipe_.model.mtp_layers > 0)
    result.mtp_loss = sum_over_ranks(counts_loss() ? further_loss_sum_ : 0) / num_targets;
  result.waited_s = pipeline_.waited_seconds();
  result.was_skipped = !update(result);
  count_experts(result);
  context_.stream.level_scratch();
  ++next_step_;
  return result;
}

// Whether the weights were updated.
bool Trainer::update(StepResult& result) {
  const GradNorm norm = grad_norm_.measure(context_, optimizer_->owned());
  result.grad_norm = std::sqrt(sum_over_ranks(norm.squares)) / scaler_.scale();
  const bool is_finite = std::isfinite(result.grad_norm) && std::isfinite(result.loss);
  const bool may_skip = scaler_.scale() > 1 || recipe_.train.on_not_finite == OnNotFinite::skip;
  if (!is_finite && !may_skip) stop_not_finite(result.loss);
  scaler_.update(!is_finite);
  if (!is_finite) return false;
  const double clip = recipe_.optimizer.clip;
  const double factor = clip > 0 && result.grad_norm > clip ? clip / result.grad_norm : 1;
  {
    const ObservedOp op(context_, "optimizer", OpObserver::Phase::forward);
    optimizer_->step(result.lr, factor / scaler_.scale());
  }
  data_parallel_->publish();
  return true;
}

// How often experts were chosen, which balances routers. Counts begin anew in any case; a step that is skipped
// changes no bias.
void Trainer::count_experts(StepResult& result) {
  if (recipe_.model.experts == 0) return;
  const auto experts = size_t(recipe_.model.experts);
  double most_load = 0;
  for (size_t i = 0; i < expert_uses_.size(); ++i) {
    const std::vector<int64_t>& mine = expert_uses_[i]->chosen;
    if (!is_meta()) std::copy(mine.begin(), mine.end(), chosen_.data<int64_t>() + i * experts);
    most_load = std::max(most_load, expert_uses_[i]->most_load);
    expert_uses_[i]->clear();
  }
  if (!expert_uses_.empty()) mesh_.data().all_reduce(chosen_);
  if (!is_meta()) loads_.data<double>()[0] = busiest_expert(), loads_.data<double>()[1] = most_load;
  world_.all_reduce(loads_, Reduction::max);
  if (is_meta()) return;
  for (size_t i = 0; !result.was_skipped && i < router_biases_.size(); ++i)
    router_biases_[i]->update(context_.stream, {chosen_.data<int64_t>() + i * experts, experts},
                              double(recipe_.model.router_bias_rate));
  result.expert_load = loads_.data<double>()[0];
  if (mesh_.shape().ep > 1) result.expert_rank_load = loads_.data<double>()[1];
}

double Trainer::busiest_expert() {
  double most = 0;
  const int64_t experts = recipe_.model.experts;
  for (size_t i = 0; i < expert_uses_.size(); ++i) {
    const int64_t* const of_layer = chosen_.data<int64_t>() + int64_t(i) * experts;
    const auto total = double(std::reduce(of_layer, of_layer + experts));
    const auto busiest = double(*std::max_element(of_layer, of_layer + experts) * experts);
    if (total > 0) most = std::max(most, busiest / total);
  }
  return most;
}

std::vector<Owned> Trainer::router_biases() const {
  std::vector<Owned> all;
  for (RouterBias* b : router_biases_)
    all.push_back({.pieces = {{.param = &b->bias, .first = 0, .offset = 0, .count = b->bias.shape.numel()}},
                   .master = b->bias.value,
                   .grads = {},
                   .values = {},
                   .is_counted = mesh_.data().rank() == 0,
                   .shard = &mesh_.none()});
  return all;
}

void Trainer::weights_changed() {
  optimizer_->masters_changed();
  data_parallel_->publish(true);
}

// Runs the step once more (it is deterministic), looking at every gradient before it is summed over ranks, to say
// whose numbers broke.
void Trainer::stop_not_finite(double loss) {
  data_parallel_->watch_for_not_finite();
  run_micro_batches(1);
  const Param* const broken = data_parallel_->not_finite();
  const bool is_culprit = broken || !std::isfinite(loss_sum_);
  // The lowest rank with a broken number speaks; the others stop with it.
  const Tensor first = context_.stream.host_memory().empty(DType::i64, {1});
  *first.data<int64_t>() = is_culprit ? world_.rank() : world_.size();
  world_.all_reduce(first, Reduction::min);
  const int64_t culprit = *first.data<int64_t>();
  if (culprit != world_.rank() && culprit < world_.size())
    throw AbortedError("rank {} met a number that is not finite at step {}", culprit, next_step_ + 1);
  throw Error(
      "step {}: {} on rank {} (loss {}); lower optimizer.lr, or write train.on_not_finite = \"skip\" to leave "
      "such steps out",
      next_step_ + 1, broken ? "the gradient of " + broken->name + " is not finite" : "the loss is not finite",
      world_.rank(), loss);
}

}  // namespace weft
