// The global norm of the gradients, which clipping compares with its limit.
#pragma once
#include <span>
#include <string>

#include "weft/autograd/param.h"

namespace weft {

struct GradNorm {
  double value = 0;                   // square root of the sum of squares over all parameters
  const Param* not_finite = nullptr;  // the first parameter whose gradient holds a NaN or an infinity
};

// Parameters without a gradient count as zero.
GradNorm grad_norm(Context& context, std::span<Param* const> params);

}  // namespace weft
