// Stages: parts of a model that stand one behind the other on different ranks, and what passes between them.
#pragma once
#include "weft/autograd/tape.h"
#include "weft/comm/communicator.h"
#include "weft/parallel/pipeline/layer_placement.h"

namespace weft {

// For passes that only go forward. Default-made, it is one stage, which has all of the model and passes nothing on.
class Stages {
 public:
  Stages() = default;
  // A rank of each stage, in the order of the stages; they outlive this. dtype: of what passes between stages.
  Stages(Communicator& ranks, DType dtype) : ranks_(ranks.size() > 1 ? &ranks : nullptr), dtype_(dtype) {}

  int index() const { return ranks_ ? ranks_->rank() : 0; }
  int count() const { return ranks_ ? ranks_->size() : 1; }
  bool is_first() const { return index() == 0; }
  bool is_last() const { return index() + 1 == count(); }

  // Which of a stack of layers this stage has.
  LayerRange layers(int64_t num_layers, const LayerCosts& costs) const;

  // What the stage before this one sends; an empty Var on the first stage.
  Var receive(Context& context, Shape shape) const;
  // To the next stage; on the last, nowhere.
  void send(const Var& x) const;
  // What the last stage chose, on all.
  int32_t share(Context& context, int32_t chosen) const;

 private:
  Communicator* ranks_ = nullptr;
  DType dtype_ = DType::f32;
};

}  // namespace weft
