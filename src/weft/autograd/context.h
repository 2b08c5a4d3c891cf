// Context: what an op needs to run on one rank: kernels, the stream they run on, memory, and the tape, if one
// listens.
#pragma once
#include <atomic>
#include <string_view>
#include <utility>

#include "weft/autograd/attention_chunks.h"
#include "weft/kernels/kernels.h"

namespace weft {

class Tape;
class SavedInputs;

// Told about every op that runs; the trace and the breakdown by op are observers.
class OpObserver {
 public:
  enum class Phase : uint8_t { forward, backward, backward_weight };
  virtual ~OpObserver() = default;
  virtual void begin(std::string_view op, Phase) = 0;
  virtual void end(std::string_view op, Phase) = 0;
};

// Lives as long as the rank; ops and Vars refer to it.
struct Context {
  const Kernels& kernels;
  Stream& stream;
  Tape* tape = nullptr;  // null: nothing is recorded, as in evaluation and serving
  OpObserver* observer = nullptr;
  SavedInputs* saved_inputs = nullptr;     // where recomputed functions leave their inputs; null: in the tape
  std::atomic<uint64_t>* pulse = nullptr;  // counts the ops, where somebody watches that this rank is alive
  double expert_load = 1;                  // without data: what the experts of this rank take, times their even share
  AttentionChunks chunks = {};             // of the call of attention at hand

  Tensor empty(DType dtype, Shape shape) { return stream.allocator().empty(dtype, shape); }
  Tensor empty_like(const Tensor& x) { return empty(x.dtype(), x.shape()); }
  // The dtype of statistics and parameter gradients beside tensors of `dtype`: f32, or f64 beside f64.
  static DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

// While it lives, nothing is recorded.
class WithoutTape {
 public:
  explicit WithoutTape(Context& context) : context_(context), tape_(std::exchange(context.tape, nullptr)) {}
  ~WithoutTape() { context_.tape = tape_; }
  WithoutTape(const WithoutTape&) = delete;
  WithoutTape& operator=(const WithoutTape&) = delete;

 private:
  Context& context_;
  Tape* tape_;
};

// Reports one op to the context's observer while it lives.
class ObservedOp {
 public:
  ObservedOp(Context& context, std::string_view op, OpObserver::Phase phase)
      : observer_(context.observer), op_(op), phase_(phase) {
    if (context.pulse) context.pulse->fetch_add(1, std::memory_order_relaxed);
    if (observer_) observer_->begin(op_, phase_);
  }
  ~ObservedOp() {
    if (observer_) observer_->end(op_, phase_);
  }
  ObservedOp(const ObservedOp&) = delete;
  ObservedOp& operator=(const ObservedOp&) = delete;

 private:
  OpObserver* observer_;
  std::string_view op_;
  OpObserver::Phase phase_;
};

}  // namespace weft
