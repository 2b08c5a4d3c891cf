// The cuda table: kernels of this folder and cuBLASLt's matrix products, in the order of the stream's queue.
#include "weft/kernels/cuda/cuda.h"

namespace weft {

const Kernels& cuda_kernels() {
  static constexpr Kernels table{
      .name = "cuda",
      .activation = cuda::activation,
      .activation_backward = cuda::activation_backward,
      .gated_activation = cuda::gated_activation,
      .gated_activation_backward = cuda::gated_activation_backward,
      .softcap = cuda::softcap,
      .softcap_backward = cuda::softcap_backward,
      .dropout = cuda::dropout,
      .add = cuda::add,
      .accumulate = cuda::accumulate,
      .scale = cuda::scale,
      .convert = cuda::convert,
      .fill = cuda::fill,
  };
  return table;
}

}  // namespace weft
