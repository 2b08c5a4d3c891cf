// Norm: the weights of an RMSNorm or a LayerNorm.
#pragma once
#include <optional>

#include "weft/autograd/ops/norm.h"

namespace weft {

class Norm {
 public:
  // placement: of the weight [H] and of the bias
  Norm(const std::string& name, NormKind kind, const Placement& placement, bool has_bias, float eps)
      : kind_(kind), eps_(eps), weight_(name + ".weight", placement, Init::ones()) {
    if (has_bias && kind == NormKind::layer) bias_.emplace(name + ".bias", placement, Init::zeros());
  }

  Var operator()(const Var& x) { return norm(x, weights()); }
  // {x, norm(x)}
  std::array<Var, 2> branch(const Var& x) { return branch_norm(x, weights()); }
  // {x + y, norm(x + y)}
  std::array<Var, 2> add(const Var& x, const Var& y) { return add_norm(x, y, weights()); }

  void each_param(auto&& visit) {
    visit(weight_);
    if (bias_) visit(*bias_);
  }

 private:
  NormWeights weights() { return {kind_, &weight_, bias_ ? &*bias_ : nullptr, eps_}; }

  NormKind kind_;
  float eps_;
  Param weight_;
  std::optional<Param> bias_;
};

}  // namespace weft
