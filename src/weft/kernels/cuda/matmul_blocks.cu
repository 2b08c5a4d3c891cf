// Products with weights in quantised blocks.
#include "weft/kernels/cuda/block_rows.cuh"
#include "weft/kernels/cuda/quantised_product.cuh"

namespace weft::cuda {

void matmul_blocks(Stream& stream, const MatmulArgs& args) {
  with_block_rows(args.blocks_b, [&]<class Rows>(const Rows& rows) {
    if (args.y.dim(0) <= Rows::kMostVectors)
      multiply_few(stream, args, rows);
    else if (args.blocks_b.type != BlockType::fp8 || !matmul_float8(stream, args))
      multiply_many(stream, args, rows, true);  // TF32 keeps more of f32 than the 8 bits that the contract allows
  });
}

}  // namespace weft::cuda
