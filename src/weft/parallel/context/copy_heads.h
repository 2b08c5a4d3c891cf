// copy_heads: moves runs of tokens of neighbouring heads between tensors.
#pragma once
#include "weft/tensor/stream.h"

namespace weft {

// Where a block begins in a tensor [tokens, heads, D].
struct HeadsAt {
  const Tensor& tensor;
  int64_t token = 0, head = 0;
};

// `tokens` x `heads` vectors of D.
inline void copy_heads(Stream& stream, HeadsAt to, HeadsAt from, int64_t tokens, int64_t heads) {
  const Tensor &dst = to.tensor, &src = from.tensor;
  check(dst.dtype() == src.dtype() && dst.dim(2) == src.dim(2), "heads of {} {} do not fit in {} {}",
        name_of(src.dtype()), src.shape(), name_of(dst.dtype()), dst.shape());
  const size_t vector = size_t(dst.dim(2)) * size_of(dst.dtype());
  const auto rows_of = [&](const HeadsAt& at) {
    const size_t token = size_t(at.tensor.dim(1)) * vector;
    return RowsAt{at.tensor, size_t(at.token) * token + size_t(at.head) * vector, token};
  };
  stream.copy_rows(rows_of(to), rows_of(from), tokens, size_t(heads) * vector);
}

}  // namespace weft
