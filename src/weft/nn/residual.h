// Residual: the residual stream between two layers.
#pragma once
#include "weft/autograd/ops/add.h"

namespace weft {

// x + branch, a sum that the next norm makes in its own pass (Norm::branch); without a branch, x.
struct Residual {
  Var x, branch = {};

  Var sum() const { return branch ? x + branch : x; }
  // What a layer's brackets are put around: the value that the layer makes last.
  Var& last() { return branch ? branch : x; }
};

}  // namespace weft
