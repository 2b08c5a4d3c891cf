// Experts: the feed-forward parts of this rank's experts, each on its own rows.
#pragma once
#include "weft/autograd/ops/linear.h"
#include "weft/parallel/expert/route.h"

namespace weft {

// E and F of this rank; every expert is a slice. Biases, where there are some, are [E, F], [E, F] and [E, H]. Without
// adapters: see expert_linear.h.
struct ExpertWeights {
  LinearWeights gate;  // [E, F, H], or none: y = down(f(up(x)))
  LinearWeights up;    // [E, F, H]
  LinearWeights down;  // [E, H, F]
  Activation f;
};

// rows[R, H] ordered by expert -> [R, H], where an expert may have none
struct ExpertsOp {
  static constexpr std::string_view kName = "experts";
  ExpertWeights w;
  RouteRef route;
  Tensor x = {}, g = {}, u = {}, act = {}, dg = {}, du = {};

  Tensor forward(Context& context, const Tensor& in);
  Tensor backward(Context& context, const Tensor& dy);
  static constexpr int kWeightParts = 3;
  void backward_weight(Context& context, const Tensor& dy, int part);
};

}  // namespace weft
