// AdamW: fp32 master weights and moments, updated in one pass. Source: Loshchilov and Hutter, 2019.
#pragma once
#include "weft/optim/optimizer.h"

namespace weft {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  // of matrices only, see Param::decays
};

class AdamW final : public Optimizer {
 public:
  AdamW(Context& context, std::vector<Owned> owned, const AdamWOptions& options);
  std::vector<State> states() override { return {{"m", m_}, {"v", v_}}; }

 private:
  void update(double lr, double grad_scale) override;

  AdamWOptions options_;
  std::vector<Tensor> m_, v_;  // first and second moment
};

}  // namespace weft
