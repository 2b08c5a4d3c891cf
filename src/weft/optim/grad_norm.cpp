// This rank's part of the global norm of the gradients.
#include "weft/optim/grad_norm.h"

#include <cmath>

#include "weft/optim/piece_tensors.h"

namespace weft {

// Pieces that count alike are read at once, since on a device each sum is waited for; piece by piece only to find a
// culprit.
GradNorm grad_norm(Context& context, std::span<const Owned> owned) {
  const ObservedOp observed(context, "grad_norm", OpObserver::Phase::forward);
  GradNorm norm;
  for (const Owned& o : owned) {
    const auto is_counted = [&](const Piece& p) { return o.is_counted && p.param->placement.is_first_copy; };
    const auto squares_of = [&](const Piece& p) {
      return context.kernels.sum_of_squares(context.stream, o.grads.slice_flat(p.offset, {p.count}));
    };
    each_alike(o.pieces, is_counted, [&](std::span<const Piece> alike) {
      const double squares = squares_of(joined(alike));
      if (is_counted(alike.front())) norm.squares += squares;
      if (std::isfinite(squares)) return;
      for (const Piece& p : alike)
        if (!norm.not_finite && !std::isfinite(squares_of(p))) norm.not_finite = p.param;
    });
  }
  return norm;
}

}  // namespace weft
