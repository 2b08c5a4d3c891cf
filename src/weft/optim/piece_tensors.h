// PieceTensors: what a kernel needs of one piece of what a rank owns.
#pragma once
#include "weft/parallel/data/near.h"

namespace weft {

struct PieceTensors {
  PieceTensors(const Owned& o, const Piece& piece)
      : master(o.master.slice_flat(piece.offset, {piece.count})),
        value(o.values ? o.values.slice_flat(piece.offset, {piece.count}) : Tensor{}),
        grad(o.grads.slice_flat(piece.offset, {piece.count})) {}

  Tensor master, value, grad;
};

// Calls visit(i, j, owned[i].pieces[j]) for every piece, to be written while its bucket is near.
template <class Visit>
void each_piece(std::span<const Owned> owned, Visit&& visit) {
  for (size_t i = 0; i < owned.size(); ++i) {
    const Near near(owned[i], Access::write);
    for (size_t j = 0; j < owned[i].pieces.size(); ++j) visit(i, j, owned[i].pieces[j]);
  }
}

// Of matrices, not of biases and norms.
inline float decay_of(const Piece& piece, double weight_decay) {
  return piece.param->decays() ? float(weight_decay) : 0.0f;
}

}  // namespace weft
