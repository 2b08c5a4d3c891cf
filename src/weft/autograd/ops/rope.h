// Rope: rotary position embedding of queries or keys.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

// cos and sin of position * theta^(-2i/R), [positions, R/2] f32 (f64 beside f64 tensors).
struct RopeTable {
  Tensor cos, sin;
};

struct RopeOp {
  static constexpr std::string_view kName = "rope";
  const RopeTable& table;    // outlives the tape
  const int32_t* positions;  // [T], host memory that outlives the tape

  // x[T, heads, D] is rotated where it is: nothing saves a projection's output.
  Tensor forward(Context& context, const Tensor& x) { return rotate(context, x, false); }
  Tensor backward(Context& context, const Tensor& dy) { return rotate(context, dy, true); }

 private:
  Tensor rotate(Context& context, const Tensor& x, bool inverse) const {
    context.kernels.rope(context.stream,
                         {.x = x, .cos = table.cos, .sin = table.sin, .positions = positions, .inverse = inverse});
    return x;
  }
};

}  // namespace weft
