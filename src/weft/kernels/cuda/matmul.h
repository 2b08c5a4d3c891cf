// What the products of this folder share on the host.
#pragma once
#include "weft/kernels/kernels.h"

namespace weft::cuda {

// A product of many rows on its way to y: cuBLASLt multiplies, then one pass over the elements does what it cannot.
// y of 16 bits is rounded before activations and gates, but not before a bias.
class DenseProduct {
 public:
  DenseProduct(Stream& stream, const MatmulArgs& args);

  // Columns [col, col + cols) of y, of b in the dtype of a: [k, cols], or [cols, k] with transpose_b.
  void multiply(int64_t col, int64_t cols, const void* b, bool rounds_f32 = false);
  void clear();  // the product of nothing
  void finish();

 private:
  Stream& stream_;
  const MatmulArgs& args_;
  bool gemm_adds_bias_;
  Tensor product_;  // y, or in f32 what becomes y
};

// matmul_nf4.cu, matmul_blocks.cu: args.nf4_b and args.blocks_b; no dim is 0.
void matmul_nf4(Stream& stream, const MatmulArgs& args);
void matmul_blocks(Stream& stream, const MatmulArgs& args);

}  // namespace weft::cuda
