// Norm: the weights of an RMSNorm or a LayerNorm.
#pragma once
#include <optional>

#include "weft/autograd/ops/norm.h"
#include "weft/nn/residual.h"

namespace weft {

struct NormConfig {
  NormKind kind = NormKind::rms;
  float eps = 1e-5f;
  bool has_weight = true, has_bias = false;
  bool has_offset = false;  // what is normalised is multiplied by 1 + weight
  float initial = 1;        // weights, or 1 + weights
};

class Norm {
 public:
  // placement: of the weight [H] and of the bias
  Norm(const std::string& name, const Placement& placement, const NormConfig& c)
      : config_(c), weight_(name + ".weight", placement, Init::constant(c.has_offset ? c.initial - 1 : c.initial)) {
    if (c.has_bias) bias_.emplace(name + ".bias", placement, Init::zeros());
    weight_.trainable = c.has_weight;
  }

  Var operator()(const Var& x) { return norm(x, weights()); }
  // {x, norm(x)} of the sum x
  std::array<Var, 2> branch(const Residual& x) { return x.branch ? add(x.x, x.branch) : branch_norm(x.x, weights()); }
  // {x + y, norm(x + y)}
  std::array<Var, 2> add(const Var& x, const Var& y) { return add_norm(x, y, weights()); }

  void each_param(auto&& visit) {
    if (config_.has_weight) visit(weight_);
    if (bias_) visit(*bias_);
  }
  // Ones, where the model has no weights.
  void prepare(Context& context, DType dtype) {
    if (config_.has_weight) return;
    weight_.value = context.empty(dtype, weight_.shape);
    context.kernels.fill(context.stream, weight_.value, 1);
  }

 private:
  NormWeights weights() {
    return {config_.kind, &weight_, bias_ ? &*bias_ : nullptr, config_.eps, config_.has_offset ? 1.0f : 0.0f};
  }

  NormConfig config_;
  Param weight_;
  std::optional<Param> bias_;
};

}  // namespace weft
