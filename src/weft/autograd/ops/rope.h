// Rope: rotary position embedding of queries and keys.
#pragma once
#include <span>

#include "weft/autograd/tape.h"

namespace weft {

// cos and sin of position * theta^(-2i/R), [positions, R/2] f32 (f64 beside f64 tensors).
struct RopeTable {
  Tensor cos, sin;
  Tensor query_factors;  // [positions] of the same: of whole queries; empty: 1
};

struct RopeOp {
  static constexpr std::string_view kName = "rope";
  const RopeTable& table;                   // outlives the tape
  std::array<const int32_t*, 2> positions;  // of queries [T] and of keys [S], host memory that outlives the tape

  // q[T, heads, D] and k[S, heads, D] are rotated where they are: nothing saves a projection's output.
  std::array<Tensor, 2> forward(Context& context, const Tensor& q, const Tensor& k) {
    return rotate(context, {q, k}, false);
  }
  std::array<Tensor, 2> backward(Context& context, const std::array<Tensor, 2>& dy) {
    return rotate(context, dy, true);
  }

 private:
  // An empty gradient has nothing to rotate.
  std::array<Tensor, 2> rotate(Context& context, const std::array<Tensor, 2>& x, bool inverse) const {
    std::array<RopeArgs, 2> ropes;
    size_t count = 0;
    for (size_t i = 0; i < 2; ++i)
      if (x[i])
        ropes[count++] = {x[i], table.cos, table.sin, positions[i], inverse, i == 0 ? table.query_factors : Tensor()};
    context.kernels.rope(context.stream, std::span(ropes).first(count));
    return x;
  }
};

}  // namespace weft
