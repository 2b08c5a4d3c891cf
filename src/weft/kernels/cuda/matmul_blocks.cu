// Products with weights in quantised blocks.
#include "weft/kernels/cuda/block_rows.cuh"
#include "weft/kernels/cuda/quantised_product.cuh"

namespace weft::cuda {
namespace {

constexpr int64_t kMostBlockVectors = 8;

bool are_alike(const BlockMatrix& a, const BlockMatrix& b) {
  return a.type == b.type && a.cols == b.cols && a.skip == b.skip;
}

// Products of one a, of few rows at once, whose weights are all in blocks: neighbours that are alike together.
template <class Args>
void multiply_few_blocks(Stream& stream, std::span<const Args> products, const FewGroups& groups) {
  VectorsOfA a(stream, products[0].a);
  while (!products.empty()) {
    size_t count = 1;
    while (count < products.size() && are_alike(products[0].blocks_b, products[count].blocks_b)) ++count;
    with_block_rows(products[0].blocks_b, [&]<class Rows>(const Rows&) {
      static_assert(Rows::kMostVectors == kMostBlockVectors);
      multiply_few<Rows>(stream, products.first(count), a, groups,
                         [](const Args& args) { return block_rows<Rows>(args.blocks_b); });
    });
    products = products.subspan(count);
  }
}

}  // namespace

void matmul_blocks(Stream& stream, const MatmulArgs& args) {
  if (args.y.dim(0) <= kMostBlockVectors)
    return multiply_few_blocks(stream, std::span(&args, 1), {.most = int(args.y.dim(0))});
  if (args.blocks_b.type == BlockType::fp8 && matmul_float8(stream, args)) return;
  with_block_rows(args.blocks_b, [&]<class Rows>(const Rows& rows) {
    multiply_many(stream, args, rows, true);  // TF32 keeps more of f32 than the 8 bits that the contract allows
  });
}

bool matmul_few_blocks(Stream& stream, std::span<const MatmulArgs> products) {
  const int64_t rows = products[0].a.dim(0);
  for (const MatmulArgs& args : products)
    if (!args.blocks_b || args.y.numel() == 0 || args.a.dim(1) == 0 || rows > kMostBlockVectors) return false;
  multiply_few_blocks(stream, products, {.most = int(rows)});
  return true;
}

bool matmul_few_blocks(Stream& stream, std::span<const GroupedMatmulArgs> products, const FewGroups& groups) {
  for (const GroupedMatmulArgs& args : products)
    if (args.y.numel() == 0 || args.a.dim(1) == 0) return false;
  multiply_few_blocks(stream, products, groups);
  return true;
}

}  // namespace weft::cuda
