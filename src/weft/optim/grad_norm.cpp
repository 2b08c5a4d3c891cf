// The global norm of the gradients.
#include "weft/optim/grad_norm.h"

#include <cmath>

namespace weft {

GradNorm grad_norm(Context& context, std::span<Param* const> params) {
  const ObservedOp observed(context, "grad_norm", OpObserver::Phase::forward);
  GradNorm norm;
  double sum = 0;
  for (const Param* p : params) {
    if (!p->trainable || !p->has_grad()) continue;
    const double squares = context.kernels.sum_of_squares(context.stream, p->grad);
    if (!std::isfinite(squares) && !norm.not_finite) norm.not_finite = p;
    sum += squares;
  }
  norm.value = std::sqrt(sum);
  return norm;
}

}  // namespace weft
