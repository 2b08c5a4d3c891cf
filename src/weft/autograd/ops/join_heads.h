// JoinHeads: heads whose first elements are shared by all of a token.
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

// shared[T, A], own[T, N, B] -> [T, N, A + B]
struct JoinHeadsOp {
  static constexpr std::string_view kName = "join_heads";
  Shape shared_shape = {}, own_shape = {};

  Tensor forward(Context& context, const Tensor& shared, const Tensor& own) {
    shared_shape = shared.shape(), own_shape = own.shape();
    Tensor y = context.empty(own.dtype(), {own.dim(0), own.dim(1), shared.dim(1) + own.dim(2)});
    context.kernels.join_heads(context.stream, y, shared, own);
    return y;
  }
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy) {
    std::array<Tensor, 2> d{context.empty(dy.dtype(), shared_shape), context.empty(dy.dtype(), own_shape)};
    context.kernels.split_heads(context.stream, d[0], d[1], dy);
    return d;
  }
};

}  // namespace weft
