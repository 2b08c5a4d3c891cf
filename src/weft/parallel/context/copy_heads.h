// copy_heads: moves runs of tokens of neighbouring heads between tensors in host memory.
#pragma once
#include <algorithm>
#include <cstring>

#include "weft/tensor/stream.h"

namespace weft {

// Where a block begins in a tensor [tokens, heads, D].
struct HeadsAt {
  const Tensor& tensor;
  int64_t token = 0, head = 0;
};

// `tokens` x `heads` vectors of D. Tensors without data are left alone.
inline void copy_heads(Stream& stream, HeadsAt to, HeadsAt from, int64_t tokens, int64_t heads) {
  const Tensor &dst = to.tensor, &src = from.tensor;
  check(dst.dtype() == src.dtype() && dst.dim(2) == src.dim(2), "heads of {} {} do not fit in {} {}",
        name_of(src.dtype()), src.shape().to_string(), name_of(dst.dtype()), dst.shape().to_string());
  if (dst.device() != Device::cpu || tokens * heads == 0) return;
  const size_t vector = size_t(dst.dim(2)) * size_of(dst.dtype()), bytes = size_t(heads) * vector;
  const size_t dst_row = size_t(dst.dim(1)) * vector, src_row = size_t(src.dim(1)) * vector;
  auto* const out = static_cast<std::byte*>(dst.raw()) + size_t(to.token) * dst_row + size_t(to.head) * vector;
  const auto* const in =
      static_cast<const std::byte*>(src.raw()) + size_t(from.token) * src_row + size_t(from.head) * vector;
  const int64_t grain = std::max<int64_t>(int64_t((256 << 10) / bytes), 1);
  stream.team().parallel_for(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) std::memcpy(out + size_t(t) * dst_row, in + size_t(t) * src_row, bytes);
  });
}

}  // namespace weft
