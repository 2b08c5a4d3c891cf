// Rope: rotary position embedding of queries and keys.
#pragma once
#include <span>

#include "weft/autograd/tape.h"

namespace weft {

// cos and sin of position * theta^(-2i/R), [positions, R/2] f32 (f64 beside f64 tensors).
struct RopeTable {
  Tensor cos, sin;
  Tensor query_cos, query_sin;  // of queries, where these are scaled by their position; empty: they are not
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
    for (size_t i = 0; i < 2; ++i) {
      const bool is_scaled = i == 0 && table.query_cos;
      if (x[i])
        ropes[count++] = {x[i], is_scaled ? table.query_cos : table.cos, is_scaled ? table.query_sin : table.sin,
                          positions[i], inverse};
    }
    context.kernels.rope(context.stream, std::span(ropes).first(count));
    return x;
  }
};

}  // namespace weft
