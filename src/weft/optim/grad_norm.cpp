// This rank's part of the global norm of the gradients.
#include "weft/optim/grad_norm.h"

#include <cmath>

#include "weft/optim/piece_tensors.h"

namespace weft {

// All pieces that count are read at once, since a device is waited for; piece by piece only to find a culprit.
GradNorm GradNormMeter::measure(Context& context, std::span<const Owned> owned) {
  const ObservedOp observed(context, "grad_norm", OpObserver::Phase::forward);
  const auto squares_of = [&](std::span<const Tensor> gradients) {
    return context.kernels.sum_of_squares(context.stream, gradients);
  };
  const auto gradient_of = [](const Owned& o, const Piece& p) { return o.grads.slice_flat(p.offset, {p.count}); };
  counted_.clear(), others_.clear();
  for (const Owned& o : owned) {
    const auto is_counted = [&](const Piece& p) { return o.is_counted && p.param->placement.is_first_copy; };
    each_alike(o.pieces, is_counted, [&](std::span<const Piece> alike) {
      (is_counted(alike.front()) ? counted_ : others_).push_back(gradient_of(o, joined(alike)));
    });
  }
  GradNorm norm{.squares = squares_of(counted_)};
  const bool are_finite = std::isfinite(norm.squares) && std::isfinite(squares_of(others_));
  counted_.clear(), others_.clear();
  if (are_finite) return norm;
  for (const Owned& o : owned) {
    for (const Piece& p : o.pieces) {
      const Tensor gradient = gradient_of(o, p);
      if (!norm.not_finite && !std::isfinite(squares_of({&gradient, 1}))) norm.not_finite = p.param;
    }
  }
  return norm;
}

}  // namespace weft
