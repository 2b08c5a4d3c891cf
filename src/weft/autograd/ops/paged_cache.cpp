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
    pools = {pool_of(k), v ? pool_of(v) : Tensor()};
  }
  return pools;
}

namespace {

int64_t bytes_of(const auto& layers) {
  int64_t sum = 0;
  for (const auto& tensors : layers)
    for (const Tensor& t : tensors) sum += t ? int64_t(t.bytes()) : 0;
  return sum;
}

}  // namespace

int64_t PagedCache::bytes() const { return bytes_of(layers_); }
int64_t PagedCache::state_bytes() const { return bytes_of(states_); }

}  // namespace weft
