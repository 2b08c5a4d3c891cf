// Pipeline: actions, one after the other.
#include "weft/parallel/pipeline/pipeline.h"

#include <algorithm>
#include <chrono>

namespace weft {

Pipeline::Pipeline(Context& context, Communicator& group, const Schedule& schedule, std::vector<Stage*> stages,
                   Wire wire, WeightGrads when)
    : context_(context), group_(group), schedule_(schedule), stages_(std::move(stages)), wire_(wire), when_(when) {
  for (int s = 0; s < schedule_.num_stages(); ++s)
    if (schedule_.rank_of(s) == group_.rank()) numbers_.push_back(s);
  check(numbers_.size() == stages_.size(), "the schedule gives this rank {} stages, not {}", numbers_.size(),
        stages_.size());
  for (const Action& a : schedule_.actions(group_.rank()))
    if (a.kind == ActionKind::backward_weight) when_ = WeightGrads::later;
  at_hand_.reserve(size_t(schedule_.shape().num_micro_batches) * 2);
}

Stage& Pipeline::stage(int number) const {
  const auto found = std::ranges::find(numbers_, number);
  check(found != numbers_.end(), "stage {} is not on rank {}", number, group_.rank());
  return *stages_[size_t(found - numbers_.begin())];
}

Pipeline::Flight& Pipeline::take_off(int stage, int micro_batch) {
  for (Flight& f : flights_)
    if (f.stage < 0) {
      f.stage = stage, f.micro_batch = micro_batch;
      return f;
    }
  flights_.push_back(
      {.tape = std::make_unique<Tape>(when_), .x = {}, .y = {}, .stage = stage, .micro_batch = micro_batch});
  return flights_.back();
}

Pipeline::Flight& Pipeline::find(int stage, int micro_batch) {
  for (Flight& f : flights_)
    if (f.stage == stage && f.micro_batch == micro_batch) return f;
  throw Error("stage {} has not run micro-batch {} forward", stage, micro_batch);
}

void Pipeline::land(Flight& f) {
  f.tape->clear();
  f.x = f.y = {};
  f.stage = f.micro_batch = -1;
}

int Pipeline::tag_of(int to_stage, int micro_batch, bool is_gradient) const {
  return (micro_batch * schedule_.num_stages() + to_stage) * 2 + is_gradient;
}

void Pipeline::send(const Tensor& t, int to_stage, int tag) {
  const int to = schedule_.rank_of(to_stage);
  if (to == group_.rank())
    at_hand_.emplace_back(tag, t);
  else
    group_.send(t, to, tag);
}

Tensor Pipeline::receive(int from_stage, int tag, int64_t rows) {
  const int from = schedule_.rank_of(from_stage);
  if (from == group_.rank()) {
    const auto found = std::ranges::find(at_hand_, tag, [](const auto& entry) { return entry.first; });
    check(found != at_hand_.end(), "stage {} has not made what its neighbour on the same rank asks for", from_stage);
    Tensor t = std::move(found->second);
    at_hand_.erase(found);
    return t;
  }
  Shape shape = wire_.shape;
  if (rows > 0) shape[0] = rows;
  Tensor t = context_.empty(wire_.dtype, shape);
  const auto begin = std::chrono::steady_clock::now();
  group_.recv(t, from, tag);
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return t;
}

void Pipeline::forward(const Action& a) {
  const Tensor in = a.stage > 0 ? receive(a.stage - 1, tag_of(a.stage, a.micro_batch, false)) : Tensor{};
  Flight& f = take_off(a.stage, a.micro_batch);
  context_.tape = f.tape.get();
  f.x = in ? f.tape->leaf(context_, in) : Var{{}, &context_};
  f.y = stage(a.stage).forward(a.micro_batch, f.x);
  context_.tape = nullptr;
  f.x.value = {};
  if (is_last(a.stage)) return;
  send(f.y.value, a.stage + 1, tag_of(a.stage + 1, a.micro_batch, false));
  f.y.value = {};  // only its slot is needed
}

void Pipeline::backward_input(const Action& a, const Tensor& loss_dy) {
  const Tensor dy = is_last(a.stage) ? loss_dy : receive(a.stage + 1, tag_of(a.stage, a.micro_batch, true));
  Flight& f = find(a.stage, a.micro_batch);
  context_.tape = f.tape.get();
  f.tape->backward(f.y, dy);
  context_.tape = nullptr;
  if (a.stage > 0) send(f.tape->take_grad_of(f.x), a.stage - 1, tag_of(a.stage - 1, a.micro_batch, true));
}

void Pipeline::run(const Tensor& loss_dy, const Schedule& schedule) {
  waited_seconds_ = 0;
  for (const Action& a : schedule.actions(group_.rank())) {
    if (observer_) observer_(a, true);
    switch (a.kind) {
      case ActionKind::forward: forward(a); break;
      case ActionKind::backward_input: backward_input(a, loss_dy); break;
      case ActionKind::backward: backward_input(a, loss_dy); [[fallthrough]];
      case ActionKind::backward_weight:
        Flight& f = find(a.stage, a.micro_batch);
        f.tape->backward_weights();
        stage(a.stage).landed(a.micro_batch);
        land(f);
        break;
    }
    if (observer_) observer_(a, false);
  }
}

void Pipeline::run_forward(int64_t rows) {
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const int s = numbers_[i];
    const Tensor in = s > 0 ? receive(s - 1, tag_of(s, 0, false), rows) : Tensor{};
    const Var y = stages_[i]->forward(0, Var{in, &context_});
    if (!is_last(s)) send(y.value, s + 1, tag_of(s + 1, 0, false));
  }
}

}  // namespace weft
