// PagedCache: the memory of its layers.
#include "weft/autograd/ops/paged_cache.h"

namespace weft {

const std::array<Tensor, 2>& PagedCache::layer(int layer, const Tensor& k, const Tensor& v) {
  std::array<Tensor, 2>& pools = layers_[size_t(layer)];
  if (!pools[0]) {
    const auto pool_of = [&](const Tensor& x) {
      const int64_t width = row_width(format_.codes, x.dim(2));
      return context_.empty(format_.dtype, {num_blocks_, block_tokens_, x.dim(1), width});
    };
    pools = {pool_of(k), pool_of(v)};
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
