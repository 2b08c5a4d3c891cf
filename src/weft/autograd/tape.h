// Tape: reverse-mode differentiation as a list of executed ops; one tape per micro-batch, consumed as it runs
// backward.
#pragma once
#include <array>
#include <concepts>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include "weft/autograd/arena.h"
#include "weft/autograd/context.h"

namespace weft {

// A value of the forward pass and the slot its gradient lands in; slot < 0 when nothing records.
struct Var {
  Tensor value;
  Context* context = nullptr;
  int slot = -1;

  explicit operator bool() const { return bool(value); }
};

// When the weight half of a backward runs: at once, under the collectives of the backward, or when backward_weights()
// is called.
enum class WeightGrads : uint8_t { now, under_collectives, later };

// An op is a struct with attributes, what it keeps, and
//   static constexpr std::string_view kName;
//   Tensor forward(Context&, const Tensor&...);           or std::array<Tensor, M>
//   Tensor backward(Context&, const Tensor& dy);          or arrays: N inputs from M outputs; void when N is 0
//   void backward_weight(Context&, const Tensor& dy);     optional: the gradient of the weights it owns
// A weight half of several matrix products may come in parts, so that each can hide a collective of its own:
//   static constexpr int kWeightParts;  void backward_weight(Context&, const Tensor& dy, int part);
// A collective that weight halves can hide has, instead of backward,
//   void start_backward(Context&, const Tensor& dy);      and Tensor finish_backward(Context&);
// Gradients may be empty tensors: an output that nothing used has an empty dy, and an input that needs no gradient
// may be given one. An op whose dy are all empty is skipped, unless it says `static constexpr bool kAlwaysBackward =
// true`, which collectives must: the other ranks of the group wait for them.
class Tape {
 public:
  explicit Tape(WeightGrads when = WeightGrads::now) : when_(when) {}
  ~Tape() { clear(); }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A Var to differentiate with respect to; its gradient stays readable through grad() after backward().
  Var leaf(Context& context, Tensor value) { return {std::move(value), &context, new_slot(true)}; }

  // Runs the list backward from y. Every node is destroyed, with what it saved, as soon as its gradient is done.
  void backward(const Var& y, Tensor dy);
  // Backward from several outputs at once (of a stage, or of a recomputed function).
  void backward();
  void seed(const Var& y, Tensor dy) { accumulate(*y.context, y.slot, std::move(dy)); }
  // The weight half, in the order in which the input half produced it.
  void backward_weights();

  const Tensor& grad(const Var& v) const { return grads_[size_t(v.slot)]; }
  Tensor take_grad_of(const Var& v) { return std::move(grads_[size_t(v.slot)]); }
  WeightGrads when() const { return when_; }
  size_t num_nodes() const { return nodes_.size(); }
  // Forgets everything recorded; memory is kept for the next micro-batch.
  void clear();

  // A tape for a function that runs again inside this one's backward; it lives until this one is cleared, and its
  // weight half becomes part of this one's.
  Tape& borrow_inner();
  void return_inner(Tape& inner);

 private:
  struct Node {
    virtual ~Node() = default;
    virtual void start_backward(Tape&) {}
    virtual bool backward(Tape&) = 0;  // whether it has queued its weight half, and so lives on
    virtual void backward_weight(int /*part*/) {}
    virtual int weight_parts() const { return 1; }
    bool is_started = false;  // a collective is under way
  };
  template <class Op, size_t N, size_t M>
  struct NodeOf;

  struct InnerWeights;
  template <class Op, class... In>
  friend auto apply(Context& context, Op op, const In&... in);

  int new_slot(bool is_leaf = false) {
    grads_.emplace_back();
    is_leaf_.push_back(is_leaf);
    return int(grads_.size()) - 1;
  }
  void accumulate(Context& context, int slot, Tensor g);
  Tensor take_grad(int slot) {
    return is_leaf_[size_t(slot)] ? grads_[size_t(slot)] : std::move(grads_[size_t(slot)]);
  }
  void queue_weight_half(Node& node) {
    weight_work_.push_back(&node);
    weight_parts_ += node.weight_parts();
  }
  void run_weight_part();
  void reset_if_done();

  WeightGrads when_;
  Arena arena_;
  std::vector<Node*> nodes_;
  std::vector<Node*> weight_work_;
  size_t weight_work_done_ = 0;
  int next_part_ = 0, weight_parts_ = 0;  // of the first one that is not done; of all that are not
  std::vector<Tensor> grads_;
  std::vector<bool> is_leaf_;
  std::vector<std::unique_ptr<Tape>> inner_;
  size_t inner_borrowed_ = 0;
};

template <class Op, class Dy>
concept HasWeightParts = requires(Op op, Context& context, const Dy& dy) {
  op.backward_weight(context, dy, 0);
};
template <class Op, class Dy>
concept HasWeightHalf = HasWeightParts<Op, Dy> || requires(Op op, Context& context, const Dy& dy) {
  op.backward_weight(context, dy);
};
template <class Op>
concept IsStartedCollective = requires(Op op, Context& context) {
  op.finish_backward(context);
};

// One-element arrays are written as plain tensors in ops; here both become arrays.
template <size_t N>
std::array<Tensor, N> as_array(std::array<Tensor, N> tensors) {
  return tensors;
}
inline std::array<Tensor, 1> as_array(Tensor tensor) { return {std::move(tensor)}; }

template <class Op, size_t N, size_t M>
struct Tape::NodeOf final : Tape::Node {
  using Dy = std::conditional_t<M == 1, Tensor, std::array<Tensor, M>>;

  Context& context;
  Op op;
  std::array<int, N> in;
  std::array<int, M> out;
  Dy dy{};

  NodeOf(Context& c, Op o, std::array<int, N> i, std::array<int, M> y)
      : context(c), op(std::move(o)), in(i), out(y) {}

  void start_backward([[maybe_unused]] Tape& tape) override {
    if constexpr (IsStartedCollective<Op>) {
      take_gradients(tape);
      const ObservedOp observed(context, Op::kName, OpObserver::Phase::backward);
      op.start_backward(context, dy);
      this->is_started = true;
    }
  }
  bool backward(Tape& tape) override {
    if constexpr (IsStartedCollective<Op>) {
      const ObservedOp observed(context, Op::kName, OpObserver::Phase::backward);
      tape.accumulate(context, in[0], op.finish_backward(context));
      return false;
    } else {
      if (!take_gradients(tape)) return false;
      backward_input(tape);
      if constexpr (HasWeightHalf<Op, Dy>) {
        if (tape.when_ != WeightGrads::now) {
          tape.queue_weight_half(*this);
          return true;
        }
        for (int part = 0; part < weight_parts(); ++part) backward_weight(part);
      }
      return false;
    }
  }
  void backward_weight([[maybe_unused]] int part) override {
    if constexpr (HasWeightHalf<Op, Dy>) {
      const ObservedOp observed(context, Op::kName, OpObserver::Phase::backward_weight);
      if constexpr (HasWeightParts<Op, Dy>)
        op.backward_weight(context, dy, part);
      else
        op.backward_weight(context, dy);
    }
  }
  int weight_parts() const override {
    if constexpr (HasWeightParts<Op, Dy>)
      return Op::kWeightParts;
    else
      return 1;
  }

 private:
  void backward_input([[maybe_unused]] Tape& tape) {
    if constexpr (!IsStartedCollective<Op>) {
      const ObservedOp observed(context, Op::kName, OpObserver::Phase::backward);
      if constexpr (N == 0) {
        if constexpr (requires { op.backward(context, dy); }) op.backward(context, dy);
      } else {
        std::array<Tensor, N> dx = as_array(op.backward(context, dy));
        for (size_t i = 0; i < N; ++i) tape.accumulate(context, in[i], std::move(dx[i]));
      }
    }
  }
  bool take_gradients(Tape& tape) {
    bool any = false;
    if constexpr (M == 1) {
      any = bool(dy = tape.take_grad(out[0]));
    } else {
      for (size_t i = 0; i < M; ++i) any |= bool(dy[i] = tape.take_grad(out[i]));
    }
    if constexpr (requires { Op::kAlwaysBackward; } || IsStartedCollective<Op>) any = true;
    return any;
  }
};

// Runs an op forward and, when a tape is listening, remembers how to run it backward. Returns a Var, or an array of
// them for an op of several outputs.
template <class Op, class... In>
auto apply(Context& context, Op op, const In&... in) {
  constexpr size_t N = sizeof...(In);
  auto forward = [&] {
    const ObservedOp observed(context, Op::kName, OpObserver::Phase::forward);
    return op.forward(context, in.value...);
  };
  using Value = decltype(forward());
  auto values = as_array(forward());
  constexpr size_t M = std::tuple_size_v<decltype(values)>;
  Tape* tape = context.tape;
  std::array<Var, M> out;
  std::array<int, M> slots{};
  for (size_t i = 0; i < M; ++i) {
    slots[i] = tape ? tape->new_slot() : -1;
    out[i] = {std::move(values[i]), &context, slots[i]};
  }
  if (tape) {
    using Node = Tape::NodeOf<Op, N, M>;
    void* memory = tape->arena_.allocate(sizeof(Node), alignof(Node));
    tape->nodes_.push_back(new (memory) Node(context, std::move(op), std::array<int, N>{in.slot...}, slots));
  }
  if constexpr (std::is_same_v<Value, Tensor>)
    return std::move(out[0]);
  else
    return out;
}

}  // namespace weft
