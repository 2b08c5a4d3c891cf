// This rank's part of the global norm of the gradients.
#include "weft/optim/grad_norm.h"

#include <cmath>

namespace weft {
namespace {

bool is_counted(const Owned& o, const Piece& piece) { return o.is_counted && piece.param->placement.is_first_copy; }

}  // namespace

// Pieces lie one behind the other with zeros between them: those that count alike are read at once, since on a device
// each sum is waited for. Piece by piece only to find a culprit.
GradNorm grad_norm(Context& context, std::span<const Owned> owned) {
  const ObservedOp observed(context, "grad_norm", OpObserver::Phase::forward);
  GradNorm norm;
  const auto squares = [&](const Owned& o, const Piece& first, const Piece& last) {
    const int64_t count = last.offset + last.count - first.offset;
    return context.kernels.sum_of_squares(context.stream, o.grads.slice_flat(first.offset, {count}));
  };
  for (const Owned& o : owned)
    for (size_t i = 0; i < o.pieces.size();) {
      size_t end = i + 1;
      while (end < o.pieces.size() && is_counted(o, o.pieces[end]) == is_counted(o, o.pieces[i])) ++end;
      const double sum = squares(o, o.pieces[i], o.pieces[end - 1]);
      for (size_t at = i; at < end && !std::isfinite(sum) && !norm.not_finite; ++at)
        if (!std::isfinite(squares(o, o.pieces[at], o.pieces[at]))) norm.not_finite = o.pieces[at].param;
      if (is_counted(o, o.pieces[i])) norm.squares += sum;
      i = end;
    }
  return norm;
}

}  // namespace weft
