// DataParallel: ranks with the same weights and different data; sums gradients group by group behind the backward
// pass.
#pragma once
#include <vector>

#include "weft/autograd/param.h"
#include "weft/comm/communicator.h"
#include "weft/parallel/brackets.h"

namespace weft {

// Gives every parameter its gradient, as a slice of one flat buffer per group, in memory that the ranks reduce in
// place. Forward: identity. Backward: all_reduce of a group's gradients, started when its last one is done and
// awaited in finish(), so that it runs while earlier groups still compute. With a group of one rank nothing is sent.
class DataParallel final : public Brackets {
 public:
  // groups: as the model lists them; the parameters and `ranks` outlive this. Gradients are f32, or f64 beside f64.
  DataParallel(Context& context, Communicator& ranks, const std::vector<std::vector<Param*>>& groups);

  // Gradients of all micro-batches of a step are summed here before the last one sends them.
  void begin_micro_batch(bool is_last) { is_last_ = is_last; }
  // After the last micro-batch's backward: sends what is left and waits; then every grad holds the sum over all
  // ranks.
  void finish();

  Var enter(size_t group, const Var& x) override;

 private:
  struct EnterOp;
  struct Bucket {
    std::vector<Param*> params;
    Tensor grads;  // all of them, one after the other
    bool is_started = false;
    Pending sum;
  };
  void start(Bucket& bucket);

  Context& context_;
  Communicator& ranks_;
  std::vector<Bucket> buckets_;
  bool is_last_ = true;
};

}  // namespace weft
