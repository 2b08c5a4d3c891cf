// The cuda table: kernels of this folder and cuBLASLt's matrix products, in the order of the stream's queue.
#include "weft/kernels/cuda/cuda.h"

namespace weft {

const Kernels& cuda_kernels() {
  static constexpr Kernels table{
      .name = "cuda",
      .attention_merge = cuda::attention_merge,
      .place_rows = cuda::place_rows,
      .rope = cuda::rope,
      .join_heads = cuda::join_heads,
      .split_heads = cuda::split_heads,
      .norm = cuda::norm,
      .norm_backward = cuda::norm_backward,
      .activation = cuda::activation,
      .activation_backward = cuda::activation_backward,
      .gated_activation = cuda::gated_activation,
      .gated_activation_backward = cuda::gated_activation_backward,
      .softcap = cuda::softcap,
      .softcap_backward = cuda::softcap_backward,
      .dropout = cuda::dropout,
      .embedding = cuda::embedding,
      .embedding_backward = cuda::embedding_backward,
      .cross_entropy = cuda::cross_entropy,
      .cross_entropy_stats = cuda::cross_entropy_stats,
      .cross_entropy_combine = cuda::cross_entropy_combine,
      .cross_entropy_gradient = cuda::cross_entropy_gradient,
      .add = cuda::add,
      .accumulate = cuda::accumulate,
      .scale = cuda::scale,
      .convert = cuda::convert,
      .fill = cuda::fill,
      .sum_rows = cuda::sum_rows,
      .scale_columns = cuda::scale_columns,
      .dot_columns = cuda::dot_columns,
      .dot_rows = cuda::dot_rows,
      .sum_of_squares = cuda::sum_of_squares,
      .adamw = cuda::adamw,
      .sgd = cuda::sgd,
      .lion = cuda::lion,
  };
  return table;
}

}  // namespace weft
