// What the products of this folder share on the host.
#pragma once
#include <span>

#include "weft/kernels/cuda/gemm.h"
#include "weft/kernels/cuda/group_rows.h"

namespace weft::cuda {

// Scales of the rows and columns of a product that has none yet; null: it has.
struct OuterScales {
  const float *rows = nullptr, *cols = nullptr;
};

// What `product`, y or at least as many rows in f32, still lacks of y.
void finish_product(Stream& stream, const MatmulArgs& args, const Tensor& product, const OuterScales& scales = {},
                    bool has_bias = false);

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
  GemmActivation activation() const;
  Gemm gemm_of(int64_t col, int64_t cols, const void* b, bool rounds_f32) const;

  Stream& stream_;
  const MatmulArgs& args_;
  bool gemm_adds_bias_;
  bool gemm_activates_ = false;  // and nothing is left to do
  Tensor product_;               // y, or in f32 what becomes y
};

// What order_by_group wrote; null of an empty tensor.
inline const GroupRows* runs_of(const Tensor& runs) {
  return static_cast<const GroupRows*>(runs ? runs.raw() : nullptr);
}

// matmul_few.cu: dense products of one a of few rows, all of them together. False: nothing was done.
bool matmul_few(Stream& stream, std::span<const MatmulArgs> products);

// The same of groups that have few rows, and of rows that name their groups.
bool matmul_few_of_groups(Stream& stream, std::span<const GroupedMatmulArgs> products);

// matmul_tiles.cu: dense products of groups of rows, and their gradients, where groups fill a card only together.
// False: nothing was done.
bool matmul_tiles(Stream& stream, std::span<const GroupedMatmulArgs> products);
bool gradient_tiles(Stream& stream, const GroupedGradientArgs& gradients);

// matmul_blocks.cu: products of one a with weights that are all in blocks, of few rows or of few to a group. False:
// nothing was done.
struct FewGroups;
bool matmul_few_blocks(Stream& stream, std::span<const MatmulArgs> products);
bool matmul_few_blocks(Stream& stream, std::span<const GroupedMatmulArgs> products, const FewGroups& groups);

// matmul_nf4.cu, matmul_blocks.cu: args.nf4_b and args.blocks_b; no dim is 0.
void matmul_nf4(Stream& stream, const MatmulArgs& args);
void matmul_blocks(Stream& stream, const MatmulArgs& args);

// matmul_rounded.cu: args.float8; no dim is 0.
void matmul_rounded(Stream& stream, const MatmulArgs& args);

// matmul_float8.cu: args.blocks_b where it is of fp8 and its product can be one of codes. False: nothing was done.
bool matmul_float8(Stream& stream, const MatmulArgs& args);

}  // namespace weft::cuda
