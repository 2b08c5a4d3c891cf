// Convolution: of single channels over their last tokens, causal: a weight [C, W], and perhaps a bias [C].
#pragma once
#include <cmath>
#include <optional>
#include <string>

#include "weft/autograd/ops/recurrence.h"

namespace weft {

struct Convolution {
  // Of the channels that placements say, `bias` where there is one; a weight starts as wide as the uniform values
  // that PyTorch starts it with.
  Convolution(const std::string& name, const Placement& of_weight, const std::optional<Placement>& of_bias)
      : weight(name + ".weight", of_weight, Init::normal(1 / std::sqrt(3.0f * float(of_weight.shape[1])))) {
    if (of_bias) bias.emplace(name + ".bias", *of_bias, Init::zeros());
  }

  // f of what the channels [first, first + width of x) make of x.
  Var operator()(const Var& x, int64_t first, const Recurrence& past, Activation f) {
    const int64_t width = x.value.dim(1);
    std::optional<ParamRows> rows;
    if (bias) rows.emplace(ParamRows{*bias, first, width});
    return apply(*x.context, CausalConvOp{.weight = {weight, first, width}, .bias = rows, .past = past, .f = f}, x);
  }
  void each_param(auto&& visit) {
    visit(weight);
    if (bias) visit(*bias);
  }

  Param weight;
  std::optional<Param> bias;
};

}  // namespace weft
