// Grouped products: groups of few rows, those that fill a card only together, and those that do so by themselves.
#include "weft/kernels/grouped_matmul.h"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/matmul.h"

namespace weft::cuda {

void grouped_matmuls(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  check_groups(products);
  const Tensor& groups = products[0].groups;
  if (products[0].a.dim(0) == 0 || matmul_few_of_groups(stream, products)) return;
  if (!groups) {
    if (!matmul_tiles(stream, products)) matmul_runs<matmuls_of_one_a>(stream, products, nullptr);
    return;
  }
  std::vector<int32_t> on_host(size_t(groups.numel()));
  stream.queue().copy_to_host(on_host.data(), groups.raw(), groups.bytes());
  matmul_runs<matmuls_of_one_a>(stream, products, on_host.data());
}

void grouped_gradients(Stream& stream, const GroupedGradientArgs& args) {
  check_groups(args);
  if (!gradient_tiles(stream, args)) each_gradient<matmul, fill>(stream, args);
}

}  // namespace weft::cuda
