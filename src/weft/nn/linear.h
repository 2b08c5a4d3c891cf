// Linear: a weight, and a bias where the model has one.
#pragma once
#include <optional>

#include "weft/autograd/ops/linear.h"

namespace weft {

class Linear {
 public:
  Linear(const std::string& name, int64_t in, int64_t out, bool has_bias, float init_std)
      : weight_(name + ".weight", {out, in}, Init::normal(init_std)) {
    if (has_bias) bias_.emplace(name + ".bias", Shape{out}, Init::zeros());
  }

  Var operator()(const Var& x) { return linear(x, weights()); }
  LinearWeights weights() { return {&weight_, bias_ ? &*bias_ : nullptr}; }

  void each_param(auto&& visit) {
    visit(weight_);
    if (bias_) visit(*bias_);
  }

 private:
  Param weight_;
  std::optional<Param> bias_;
};

}  // namespace weft
