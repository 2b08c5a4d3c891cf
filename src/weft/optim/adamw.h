// AdamW: fp32 master weights and moments, updated in one pass. Source: Loshchilov and Hutter, 2019.
#pragma once
#include "weft/optim/element_state.h"

namespace weft {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  // of matrices only, see Param::decays
};

class AdamW final : public Optimizer {
 public:
  // Updates the parameters that are meant; others stay as they are.
  AdamW(Context& context, std::vector<Owned> owned, const AdamWOptions& options, IsMeant which = every_param);

  std::vector<State> states_of(std::string_view param, const Shape& whole) const override;
  void visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) override;

 private:
  void update(double lr, double grad_scale) override;

  AdamWOptions options_;
  IsMeant which_;
  ElementState m_, v_;  // first and second moment
};

// The kernel's arguments but for the moments, at update number `num_updates`.
AdamWArgs adamw_args(const Owned& owned, const Piece& piece, const AdamWOptions& options, int64_t num_updates,
                     double lr, double grad_scale);

}  // namespace weft
