// Sgd and Lion: optimizers with one state an element, updated in one pass.
#pragma once
#include "weft/optim/element_state.h"

namespace weft {

// m = momentum * m + g; weight -= lr * (m + weight_decay * weight), or with nesterov (g + momentum * m) for m.
// Source: Sutskever et al., 2013; decay is decoupled, as in AdamW.
struct SgdOptions {
  double momentum = 0.9;  // 0: no state
  bool nesterov = false;
  double weight_decay = 0;
};

// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
struct LionOptions {
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 1.0;
  // 0: the sign of c. Otherwise c / (|c| + softness), which is continuous: rounding errors stay rounding errors.
  double softness = 0;
};

class Sgd final : public Optimizer {
 public:
  Sgd(Context& context, std::vector<Owned> owned, const SgdOptions& options);
  std::vector<State> states_of(std::string_view param, const Shape& whole) const override;
  void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) override;

 private:
  void update(double lr, double grad_scale) override;
  SgdOptions options_;
  ElementState m_;
};

class Lion final : public Optimizer {
 public:
  Lion(Context& context, std::vector<Owned> owned, const LionOptions& options);
  std::vector<State> states_of(std::string_view param, const Shape& whole) const override;
  void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) override;

 private:
  void update(double lr, double grad_scale) override;
  LionOptions options_;
  ElementState m_;
};

}  // namespace weft
