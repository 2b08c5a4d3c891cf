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

// Elements [offset, offset + count) of a bucket's gradients as f32 (f64 beside f64): as they lie, or a copy of those
// of 16 bits for kernels that read no others.
inline Tensor wide_gradient(Context& context, const Owned& o, int64_t offset, int64_t count) {
  const Tensor grad = o.grads.slice_flat(offset, {count});
  if (grad.dtype() == o.wide_dtype()) return grad;
  Tensor wide = context.empty(o.wide_dtype(), {count});
  context.kernels.convert(context.stream, wide, grad);
  return wide;
}

// Calls visit(i, j, owned[i].pieces[j]) for every piece, to be written while its bucket is near.
template <class Visit>
void each_piece(std::span<const Owned> owned, Visit&& visit) {
  for (size_t i = 0; i < owned.size(); ++i) {
    const Near near(owned[i], Access::write);
    for (size_t j = 0; j < owned[i].pieces.size(); ++j) visit(i, j, owned[i].pieces[j]);
  }
}

// Calls visit(alike) for each run of neighbouring pieces of which kind_of(piece) is the same.
template <class KindOf, class Visit>
void each_alike(std::span<const Piece> pieces, const KindOf& kind_of, const Visit& visit) {
  while (!pieces.empty()) {
    size_t count = 1;
    while (count < pieces.size() && kind_of(pieces[count]) == kind_of(pieces[0])) ++count;
    visit(pieces.first(count));
    pieces = pieces.subspan(count);
  }
}
// Neighbours as one piece of the first one's parameter: in flat tensors zeros lie between them.
inline Piece joined(std::span<const Piece> alike) {
  Piece all = alike.front();
  all.count = alike.back().offset + alike.back().count - all.offset;
  return all;
}

// Of matrices, not of biases and norms.
inline float decay_of(const Piece& piece, double weight_decay) {
  return piece.param->decays() ? float(weight_decay) : 0.0f;
}

}  // namespace weft
