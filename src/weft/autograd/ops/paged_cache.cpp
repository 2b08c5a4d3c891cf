// PagedCache: the memory of its layers.
#include "weft/autograd/ops/paged_cache.h"

namespace weft {

const std::array<Tensor, 2>& PagedCache::layer(int layer, const Tensor& k, const Tensor& v) {
  std::array<Tensor, 2>& pools = layers_[size_t(layer)];
  if (!pools[0]) {
    pools[0] = context_.empty(dtype_, {num_blocks_, block_tokens_, k.dim(1), k.dim(2)});
    pools[1] = context_.empty(dtype_, {num_blocks_, block_tokens_, v.dim(1), v.dim(2)});
  }
  return pools;
}

int64_t PagedCache::bytes() const {
  int64_t sum = 0;
  for (const auto& pools : layers_)
    for (const Tensor& pool : pools) sum += pool ? int64_t(pool.bytes()) : 0;
  return sum;
}

}  // namespace weft
