// ExpertLinear: one projection of a layer's experts, and an adapter of each expert where the model has them.
#pragma once
#include <optional>
#include <vector>

#include "weft/autograd/ops/linear.h"
#include "weft/nn/lora.h"
#include "weft/nn/pass.h"
#include "weft/parallel/expert/route.h"

namespace weft {

// Rows on their way through experts.
struct ExpertRows {
  RouteRef route;
  std::vector<int32_t> sets = {};  // of each row its adapter (RowAdapters::sets), where rows have any
};

class ExpertLinear {
 public:
  // placement: of the weight [E, O, I]. is_sum, is_first: see trained_lora_placements; the first adds the bias.
  ExpertLinear(const std::string& name, const Placement& placement, bool has_bias, float init_std, BaseFormat base,
               const AdapterConfig& adapter, bool is_sum, bool is_first);

  // x[R, I] ordered by expert -> [R, O]
  Var operator()(const Var& x, const ExpertRows& rows, const Pass& pass);
  Param& weight() { return weight_; }
  LinearWeights weights() { return {&weight_, bias_ && adds_bias_ ? &*bias_ : nullptr}; }
  bool has_adapter() const { return a_.has_value(); }

  void each_param(auto&& visit) {
    visit(weight_);
    if (bias_) visit(*bias_);
    if (a_) visit(*a_), visit(*b_);
  }

 private:
  float scale_;
  bool adds_bias_;
  Param weight_;
  std::optional<Param> bias_;   // [E, O]
  std::optional<Param> a_, b_;  // [E, r, I], [E, O, r]
};

}  // namespace weft
