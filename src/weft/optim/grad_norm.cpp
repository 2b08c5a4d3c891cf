// This rank's part of the global norm of the gradients.
#include "weft/optim/grad_norm.h"

#include <cmath>

namespace weft {

GradNorm grad_norm(Context& context, std::span<const Owned> owned) {
  const ObservedOp observed(context, "grad_norm", OpObserver::Phase::forward);
  GradNorm norm;
  for (const Owned& o : owned)
    for (const Piece& piece : o.pieces) {
      const double squares =
          context.kernels.sum_of_squares(context.stream, o.grads.slice_flat(piece.offset, {piece.count}));
      if (!std::isfinite(squares) && !norm.not_finite) norm.not_finite = piece.param;
      if (o.is_counted && piece.param->placement.is_first_copy) norm.squares += squares;
    }
  return norm;
}

}  // namespace weft
