// Tape: the walk backward, and what happens when two gradients meet in a slot.
#include "weft/autograd/tape.h"

namespace weft {

void Tape::accumulate(Context& context, int slot, Tensor g) {
  if (slot < 0 || !g) return;
  Tensor& sum = grads_[size_t(slot)];
  if (!sum) {
    sum = std::move(g);
    return;
  }
  // Another slot may hold the same tensor, so a shared one is never written.
  const Tensor target = sum.is_unique() ? sum : context.empty_like(sum);
  context.kernels.add(context.stream, target, sum, g);
  sum = target;
}

void Tape::backward(const Var& y, Tensor dy) {
  seed(y, std::move(dy));
  backward();
}

void Tape::backward() {
  while (!nodes_.empty()) {
    Node* node = nodes_.back();
    nodes_.pop_back();
    node->start_backward(*this);
    // Half of what is queued hides this collective, the rest the next one: regions begin and end with one each.
    if (node->is_started && when_ == WeightGrads::under_collectives)
      for (int left = (weight_parts_ + 1) / 2; left > 0; --left) run_weight_part();
    if (!node->backward(*this)) node->~Node();
  }
  if (when_ == WeightGrads::under_collectives) backward_weights();
  reset_if_done();
}

void Tape::backward_weights() {
  while (weight_work_done_ < weight_work_.size()) run_weight_part();
  reset_if_done();
}

void Tape::run_weight_part() {
  Node* node = weight_work_[weight_work_done_];
  node->backward_weight(next_part_);
  --weight_parts_;
  if (++next_part_ < node->weight_parts()) return;
  next_part_ = 0;
  ++weight_work_done_;
  node->~Node();
}

void Tape::reset_if_done() {
  if (!nodes_.empty() || weight_work_done_ < weight_work_.size()) return;
  weight_work_.clear();
  weight_work_done_ = 0;
  next_part_ = weight_parts_ = 0;
  arena_.reset();
}

// The deferred weight half of an inner tape, as one entry of the outer queue.
struct Tape::InnerWeights final : Tape::Node {
  Tape& inner;
  explicit InnerWeights(Tape& t) : inner(t) {}
  bool backward(Tape&) override { return false; }
  void backward_weight(int) override { inner.backward_weights(); }
};

Tape& Tape::borrow_inner() {
  // Unless weight gradients are for later, an inner tape is done when it comes back, and one serves all.
  if (inner_borrowed_ == inner_.size()) inner_.push_back(std::make_unique<Tape>(when_));
  return *inner_[inner_borrowed_++];
}

void Tape::return_inner(Tape& inner) {
  if (when_ != WeightGrads::later) {
    inner.clear();
    --inner_borrowed_;
    return;
  }
  queue_weight_half(*new (arena_.allocate(sizeof(InnerWeights), alignof(InnerWeights))) InnerWeights(inner));
}

void Tape::clear() {
  for (; !nodes_.empty(); nodes_.pop_back()) nodes_.back()->~Node();
  for (; weight_work_done_ < weight_work_.size(); ++weight_work_done_) weight_work_[weight_work_done_]->~Node();
  reset_if_done();
  grads_.clear();
  is_leaf_.clear();
  for (const auto& inner : inner_) inner->clear();
  inner_borrowed_ = 0;
}

}  // namespace weft
