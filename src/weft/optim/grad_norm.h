// The global norm of the gradients, which clipping compares with its limit.
#pragma once
#include <span>
#include <vector>

#include "weft/parallel/data/bucket.h"

namespace weft {

struct GradNorm {
  double squares = 0;                 // what this rank adds to the sum over all ranks
  const Param* not_finite = nullptr;  // the first parameter here whose gradient holds a NaN or an infinity
};

// Keeps its lists, so that steps allocate nothing.
class GradNormMeter {
 public:
  // Every element of every weight is counted by one rank of the world: copies are left out.
  GradNorm measure(Context& context, std::span<const Owned> owned);

 private:
  std::vector<Tensor> counted_, others_;  // of one call
};

}  // namespace weft
