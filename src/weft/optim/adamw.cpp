// AdamW: state and the update of every parameter.
#include "weft/optim/adamw.h"

#include <cmath>

namespace weft {

AdamW::AdamW(Context& context, const std::vector<Param*>& params, const AdamWOptions& options, uint64_t seed)
    : context_(context), options_(options) {
  for (Param* p : params) {
    if (!p->trainable) continue;
    State s{.param = p, .master = p->value, .m = context.empty(DType::f32, p->shape), .v = {}};
    s.v = context.empty_like(s.m);
    if (p->value.dtype() != DType::f32) {
      s.master = context.empty_like(s.m);
      initialize(context, *p, seed, s.master);
    }
    context.kernels.fill(context.stream, s.m, 0);
    context.kernels.fill(context.stream, s.v, 0);
    states_.push_back(std::move(s));
  }
}

void AdamW::step(double lr, double grad_scale) {
  ++num_updates_;
  const double correction1 = 1 - std::pow(options_.beta1, double(num_updates_));
  const double correction2 = 1 - std::pow(options_.beta2, double(num_updates_));
  const ObservedOp observed(context_, "adamw", OpObserver::Phase::forward);
  for (State& s : states_) {
    Param& p = *s.param;
    if (!p.has_grad()) context_.kernels.fill(context_.stream, p.grad, 0);
    const bool is_own_value = s.master.shares_buffer_with(p.value);
    context_.kernels.adamw(context_.stream, {.master = s.master,
                                             .value = is_own_value ? Tensor{} : p.value,
                                             .m = s.m,
                                             .v = s.v,
                                             .grad = p.grad,
                                             .grad_scale = float(grad_scale),
                                             .lr = float(lr),
                                             .beta1 = float(options_.beta1),
                                             .beta2 = float(options_.beta2),
                                             .eps = float(options_.eps),
                                             .weight_decay = p.decays() ? float(options_.weight_decay) : 0.0f,
                                             .bias_correction1 = float(correction1),
                                             .bias_correction2 = float(correction2)});
    p.clear_grad();
    p.value_changed();
  }
}

void AdamW::masters_changed() {
  for (State& s : states_) {
    if (!s.master.shares_buffer_with(s.param->value))
      context_.kernels.convert(context_.stream, s.param->value, s.master);
    s.param->value_changed();
  }
}

}  // namespace weft
