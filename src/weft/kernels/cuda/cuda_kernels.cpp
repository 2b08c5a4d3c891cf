// The cuda table: kernels of this folder and cuBLASLt's matrix products, in the order of the stream's queue.
#include "weft/kernels/cuda/cuda.h"

namespace weft {

const Kernels& cuda_kernels() {
  static constexpr Kernels table{
      .name = "cuda",
      .matmul = cuda::matmul,
      .packed_matmul_b_bytes = cuda::packed_matmul_b_bytes,
      .pack_matmul_b = cuda::pack_matmul_b,
      .add = cuda::add,
      .accumulate = cuda::accumulate,
      .scale = cuda::scale,
      .convert = cuda::convert,
      .fill = cuda::fill,
  };
  return table;
}

}  // namespace weft
