// The cuda table: kernels of this folder and cuBLASLt's matrix products, in the order of the stream's queue.
#include "weft/kernels/cuda/cuda.h"

namespace weft {

const Kernels& cuda_kernels() {
  static constexpr Kernels table{
      .name = "cuda",
      .matmul = cuda::matmul,
      .packed_matmul_b_bytes = cuda::packed_matmul_b_bytes,
      .pack_matmul_b = cuda::pack_matmul_b,
      .attention = cuda::attention,
      .attention_backward = cuda::attention_backward,
      .attention_merge = cuda::attention_merge,
      .paged_attention = cuda::paged_attention,
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
      .embedding_of_blocks = cuda::embedding_of_blocks,
      .embedding_backward = cuda::embedding_backward,
      .cross_entropy = cuda::cross_entropy,
      .cross_entropy_stats = cuda::cross_entropy_stats,
      .cross_entropy_combine = cuda::cross_entropy_combine,
      .cross_entropy_gradient = cuda::cross_entropy_gradient,
      .route = cuda::route,
      .route_backward = cuda::route_backward,
      .combine_rows = cuda::combine_rows,
      .combine_rows_backward = cuda::combine_rows_backward,
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
      .adamw8 = cuda::adamw8,
      .sgd = cuda::sgd,
      .lion = cuda::lion,
      .encode_blocks = cuda::encode_blocks,
      .decode_blocks = cuda::decode_blocks,
      .add_factor_sums = cuda::add_factor_sums,
      .factor_moment = cuda::factor_moment,
      .factored_squares = cuda::factored_squares,
      .adafactor = cuda::adafactor,
  };
  return table;
}

}  // namespace weft
