// The cuda table: kernels of this folder and cuBLASLt's matrix products, in the order of the stream's queue.
#include "weft/kernels/cuda/cuda.h"

namespace weft {

const Kernels& cuda_kernels() {
  static constexpr Kernels table{
      .name = "cuda",
      .attention = cuda::attention,
      .attention_backward = cuda::attention_backward,
      .paged_attention = cuda::paged_attention,
      .add = cuda::add,
      .accumulate = cuda::accumulate,
      .scale = cuda::scale,
      .convert = cuda::convert,
      .fill = cuda::fill,
  };
  return table;
}

}  // namespace weft
