// Stage: what a pipeline needs of one part of a model.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

class Stage {
 public:
  virtual ~Stage() = default;
  // Runs the part's forward pass for a micro-batch, on the context's tape. x: what the stage before gave, or empty on
  // the first. Returns the residual stream, or, on the last stage, the loss to run backward from.
  virtual Var forward(int micro_batch, const Var& x) = 0;
  // Both halves of the micro-batch's backward pass are done.
  virtual void landed(int /*micro_batch*/) {}
};

}  // namespace weft
