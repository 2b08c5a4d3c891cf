// Matrices: a parameter as matrices of which the ranks of its shard and tensor groups hold parts.
#pragma once
#include "weft/parallel/data/bucket.h"

namespace weft {

// A vector is one row, and so is each of a stack of them; of a tensor with more dims the last two are a matrix (one
// for each expert). The tensor group cuts rows and columns; dim 0 of a stack may be cut over other ranks, which have
// matrices of their own.
struct Matrices {
  explicit Matrices(const Param& p) : param(&p) {
    const Placement& place = p.placement;
    const int rank = p.shape.rank();
    if (rank >= 1) cols = {place.begin[size_t(rank - 1)], p.shape[-1], place.whole[-1]};
    if (is_stack_of_vectors(p.name, p.shape)) {
      count = p.shape[0], first = place.begin[0];
      return;
    }
    for (int d = 0; d + 2 < rank; ++d) count *= p.shape[d];
    for (int d = 1; d + 2 < rank; ++d) first *= place.whole[d];
    first = rank > 2 ? first * place.begin[0] : 0;
    for (int d = 1; d + 2 < rank; ++d) check(p.shape[d] == place.whole[d], "{} is cut in dim {}", p.name, d);
    if (rank >= 2) rows = {place.begin[size_t(rank - 2)], p.shape[-2], place.whole[-2]};
  }

  int64_t local_size() const { return rows.count * cols.count; }
  int64_t whole_size() const { return rows.total * cols.total; }
  // Elements here inside the tensor group's matrices, [count, rows, cols].
  Placement in_group() const { return Placement({count, rows.total, cols.total}).cut(1, rows).cut(2, cols); }

  const Param* param;
  int64_t count = 1, first = 0;  // matrices here; which one of the whole parameter's is the first
  Cut rows{0, 1, 1}, cols{0, 1, 1};
};

}  // namespace weft
