// Ring attention: keys and values visit every rank; partial results are merged as they come.
// Source: Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2023.
#pragma once
#include "weft/parallel/context/context_attention.h"

namespace weft {

// Partial results are summed in f32 or wider. In the backward the gradients of a block travel with it and come home
// after a full turn.
struct RingAttentionOp {
  static constexpr std::string_view kName = "ring_attention";
  static constexpr bool kAlwaysBackward = true;
  ContextCall call;
  Tensor q = {}, k = {}, v = {}, y = {}, lse = {};

  Tensor forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in);
  std::array<Tensor, 3> backward(Context& context, const Tensor& dy);
};

}  // namespace weft
