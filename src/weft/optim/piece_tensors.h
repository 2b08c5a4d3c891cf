// PieceTensors: what a kernel needs of one piece of what a rank owns.
#pragma once
#include "weft/parallel/data/bucket.h"

namespace weft {

struct PieceTensors {
  PieceTensors(const Owned& o, const Piece& piece)
      : master(o.master.slice_flat(piece.offset, {piece.count})),
        value(o.values ? o.values.slice_flat(piece.offset, {piece.count}) : Tensor{}),
        grad(o.grads.slice_flat(piece.offset, {piece.count})) {}

  Tensor master, value, grad;
};

// Of matrices, not of biases and norms.
inline float decay_of(const Piece& piece, double weight_decay) {
  return piece.param->decays() ? float(weight_decay) : 0.0f;
}

}  // namespace weft
