// AdamW: fp32 master weights and moments, updated in one pass. Source: Loshchilov and Hutter, 2019.
#pragma once
#include <span>
#include <vector>

#include "weft/autograd/param.h"

namespace weft {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  // of matrices only, see Param::decays
};

class AdamW {
 public:
  struct State {
    Param* param;
    Tensor master;  // f32; the parameter's own value when that is f32
    Tensor m, v;    // first and second moment, f32
  };

  // Masters start as the parameters' initial values for `seed`; after writing other values into them call
  // masters_changed(). The parameters outlive this.
  AdamW(Context& context, const std::vector<Param*>& params, const AdamWOptions& options, uint64_t seed);

  // One update with every gradient multiplied by grad_scale; gradients are cleared.
  void step(double lr, double grad_scale);
  // Copies the masters into the values of the model.
  void masters_changed();

  std::span<State> states() { return states_; }
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t n) { num_updates_ = n; }

 private:
  Context& context_;
  AdamWOptions options_;
  std::vector<State> states_;
  int64_t num_updates_ = 0;
};

}  // namespace weft
