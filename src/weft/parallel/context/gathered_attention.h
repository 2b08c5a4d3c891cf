// Gathered attention: every rank gathers all keys and values and attends to them with its own queries.
// Source: Meta, "The Llama 3 Herd of Models", 2024.
#pragma once
#include "weft/parallel/context/context_attention.h"

namespace weft {

// Keys and values are gathered again in the backward, so that only the rank's own are kept.
struct GatheredAttentionOp {
  static constexpr std::string_view kName = "gathered_attention";
  static constexpr bool kAlwaysBackward = true;
  ContextCall call;
  Tensor q = {}, k = {}, v = {}, y = {}, lse = {};

  Tensor forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in);
  std::array<Tensor, 3> backward(Context& context, const Tensor& dy);

 private:
  Tensor gather(Context& context, const Tensor& part) const;
  Tensor scatter_sum(Context& context, const Tensor& whole, const Tensor& like) const;
};

}  // namespace weft
