// Linear layers of experts, each on its own rows, and the low-rank adapters beside them. Where there are adapters,
// what they add comes before the activation, so that experts are these ops one by one and not one op.
#pragma once
#include "weft/autograd/tape.h"
#include "weft/parallel/expert/expert_products.h"

namespace weft {

// x[R, I] ordered by expert -> x w_eᵀ + b_e [R, O]; w: [E, O, I], and [E, O] where there is a bias
struct ExpertLinearOp {
  static constexpr std::string_view kName = "experts";
  LinearWeights w;
  RouteRef route;
  Tensor x = {};

  Tensor forward(Context& context, const Tensor& in);
  Tensor backward(Context& context, const Tensor& dy);
  void backward_weight(Context& context, const Tensor& dy) { add_expert_gradients(context, *route, w, dy, x); }
};

// y + scale * x a_eᵀ b_eᵀ. y is written where nobody else has it.
struct ExpertLoraOp {
  static constexpr std::string_view kName = "lora";
  Param& a;  // [E, r, I]
  Param& b;  // [E, O, r]
  float scale;
  RouteRef route;
  Tensor x = {}, h = {}, dh = {};  // h = scale * x aᵀ [R, r] and dh = scale * dy b [R, r]

  Tensor forward(Context& context, const Tensor& y, const Tensor& in);
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy);
  void backward_weight(Context& context, const Tensor& dy);
};

}  // namespace weft
