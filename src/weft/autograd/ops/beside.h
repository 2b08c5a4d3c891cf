// Beside: a value whose gradient asks for that of another one too.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

// y = a. dy goes to both: of losses, whose gradients carry their own weights (HeadLossOp).
struct BesideOp {
  static constexpr std::string_view kName = "beside";

  Tensor forward(Context&, const Tensor& a, const Tensor&) { return a; }
  std::array<Tensor, 2> backward(Context&, const Tensor& dy) { return {dy, dy}; }
};

}  // namespace weft
