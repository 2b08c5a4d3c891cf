// AdamW: the update of every piece that this rank owns.
#include "weft/optim/adamw.h"

#include <cmath>

namespace weft {

AdamW::AdamW(Context& context, std::vector<Owned> owned, const AdamWOptions& options)
    : Optimizer(context, std::move(owned)), options_(options), m_(zeros()), v_(zeros()) {}

void AdamW::update(double lr, double grad_scale) {
  const double correction1 = 1 - std::pow(options_.beta1, double(num_updates_));
  const double correction2 = 1 - std::pow(options_.beta2, double(num_updates_));
  const ObservedOp observed(context_, "adamw", OpObserver::Phase::forward);
  for (size_t i = 0; i < owned_.size(); ++i) {
    const Owned& o = owned_[i];
    const Near near(o, Access::write);
    for (const Piece& piece : o.pieces) {
      const auto slice = [&](const Tensor& t) { return t ? t.slice_flat(piece.offset, {piece.count}) : Tensor{}; };
      context_.kernels.adamw(context_.stream,
                             {.master = slice(o.master),
                              .value = slice(o.values),
                              .m = slice(m_[i]),
                              .v = slice(v_[i]),
                              .grad = slice(o.grads),
                              .grad_scale = float(grad_scale),
                              .lr = float(lr),
                              .beta1 = float(options_.beta1),
                              .beta2 = float(options_.beta2),
                              .eps = float(options_.eps),
                              .weight_decay = piece.param->decays() ? float(options_.weight_decay) : 0.0f,
                              .bias_correction1 = float(correction1),
                              .bias_correction2 = float(correction2)});
    }
  }
}

}  // namespace weft
