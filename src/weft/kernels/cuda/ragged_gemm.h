// ragged_gemm: gemm for matrices whose rows begin anywhere. Rows of a large matrix that do not begin at multiples of
// 16 bytes, as those of 50,257 logits do not, keep tensor cores waiting: they are multiplied from, and written to,
// copies that are apart by whole vectors; and what is no whole vector of columns is a small product by itself.
#pragma once
#include "weft/kernels/cuda/gemm.h"

namespace weft::cuda {

inline int64_t per_vector(DType type) { return kVectorBytes / int64_t(size_of(type)); }

// uses: how often each row is read or added to, which a copy has to be worth.
inline bool is_ragged(DType type, int64_t rows, int64_t cols, int64_t uses) {
  constexpr int64_t kLarge = int64_t(1) << 18, kOften = 256;
  return cols % per_vector(type) != 0 && rows * cols >= kLarge && uses >= kOften;
}

// As gemm. Products whose k is that of ragged rows of a are split only into y of f32, where sums of two parts are not
// rounded between them.
void ragged_gemm(Stream& stream, const Gemm& product);

}  // namespace weft::cuda
