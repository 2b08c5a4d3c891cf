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

}  // namespace weft
