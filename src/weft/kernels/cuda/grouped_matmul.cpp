// Grouped products: groups of few rows, of as many rows each, those that fill a card only together, and those that do
// so by themselves.
#include "weft/kernels/grouped_matmul.h"

#include <vector>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// Rows of each group, where there are several and all have as many; else 0.
int64_t even_rows(std::span<const int64_t> starts) {
  if (starts.size() < 3) return 0;
  for (size_t g = 1; g + 1 < starts.size(); ++g)
    if (starts[g + 1] - starts[g] != starts[1]) return 0;
  return starts[1];
}

// Groups of as many rows each, as heads are, are one product of a batch. Of weights that are not transposed: kernels
// for the others give a row the same bits whatever its group has. False: nothing was done.
bool multiply_as_batch(Stream& stream, const GroupedMatmulArgs& p) {
  const int64_t rows = even_rows(p.starts);
  const bool is_dense = p.b && !p.transpose_b && !p.nf4_b && !p.blocks_b && !p.float8;
  if (rows == 0 || !is_dense || p.accumulate || p.epilogue.bias || p.epilogue.kind != Epilogue::Kind::none ||
      p.y.dim(1) == 0 || p.a.dim(1) == 0)
    return false;
  // Each of the batch lies as the first does.
  const int64_t vector = kVectorBytes / int64_t(size_of(p.a.dtype()));
  for (const int64_t elements : {rows * p.y.dim(1), rows * p.a.dim(1), p.y.dim(1) * p.a.dim(1)})
    if (elements % vector != 0) return false;
  shapes::check_matmul(of_group(p, 0, rows, 0));  // as all others
  gemm(stream, {.type = p.a.dtype(),
                .y_type = p.y.dtype(),
                .m = rows,
                .n = p.y.dim(1),
                .k = p.a.dim(1),
                .y = p.y.raw(),
                .y_stride = p.y.dim(1),
                .a = p.a.raw(),
                .b = p.b.raw(),
                .batch = p.b.dim(0)});
  return true;
}

}  // namespace

void grouped_matmuls(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  check_groups(products);
  if (products[0].a.dim(0) == 0 || matmul_few_of_groups(stream, products)) return;
  if ((products.size() == 1 && multiply_as_batch(stream, products[0])) || matmul_tiles(stream, products)) return;
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
