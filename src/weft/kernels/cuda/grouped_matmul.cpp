// Grouped products: groups of few rows, those that fill a card only together, and those that do so by themselves.
#include "weft/kernels/grouped_matmul.h"

#include <vector>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/matmul.h"

namespace weft::cuda {

void grouped_matmuls(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  check_groups(products);
  if (products[0].a.dim(0) == 0 || matmul_few_of_groups(stream, products) || matmul_tiles(stream, products)) return;
  const Tensor& named = list_of_groups(products[0]);
  std::vector<int32_t> on_host(size_t(named ? named.numel() : 0));
  if (named) stream.queue().copy_to_host(on_host.data(), named.raw(), named.bytes());
  matmul_runs<matmuls_of_one_a>(stream, products, on_host.data());
}

void grouped_gradients(Stream& stream, const GroupedGradientArgs& args) {
  check_groups(args);
  if (!gradient_tiles(stream, args)) each_gradient<matmul, fill>(stream, args);
}

}  // namespace weft::cuda
