// The cpu table: SIMD chosen at run time, work shared by the stream's team.
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/grouped_matmul.h"

namespace weft {

const Kernels& cpu_kernels() {
  static constexpr Kernels table{
      .name = "cpu",
      .matmul = cpu::matmul,
      .matmuls_of_one_a = cpu::matmuls_of_one_a,
      .grouped_matmuls = each_group<cpu::matmuls_of_one_a>,
      .packed_matmul_b_bytes = cpu::packed_matmul_b_bytes,
      .pack_matmul_b = cpu::pack_matmul_b,
      .attention = cpu::attention,
      .attention_backward = cpu::attention_backward,
      .attention_merge = cpu::attention_merge,
      .paged_attention = cpu::paged_attention,
      .place_rows = each<cpu::place_rows>,
      .rope = each<cpu::rope>,
      .join_heads = cpu::join_heads,
      .split_heads = cpu::split_heads,
      .norm = cpu::norm,
      .norm_backward = cpu::norm_backward,
      .activation = cpu::activation,
      .activation_backward = cpu::activation_backward,
      .gated_activation = cpu::gated_activation,
      .gated_activation_backward = cpu::gated_activation_backward,
      .softcap = cpu::softcap,
      .softcap_backward = cpu::softcap_backward,
      .dropout = cpu::dropout,
      .embedding = cpu::embedding,
      .embedding_of_blocks = cpu::embedding_of_blocks,
      .embedding_backward = cpu::embedding_backward,
      .cross_entropy = cpu::cross_entropy,
      .cross_entropy_stats = cpu::cross_entropy_stats,
      .cross_entropy_combine = cpu::cross_entropy_combine,
      .cross_entropy_gradient = cpu::cross_entropy_gradient,
      .route = cpu::route,
      .route_backward = cpu::route_backward,
      .combine_rows = cpu::combine_rows,
      .combine_rows_backward = cpu::combine_rows_backward,
      .add = cpu::add,
      .accumulate = cpu::accumulate,
      .scale = cpu::scale,
      .convert = cpu::convert,
      .fill = cpu::fill,
      .sum_rows = cpu::sum_rows,
      .scale_columns = cpu::scale_columns,
      .dot_columns = cpu::dot_columns,
      .dot_rows = cpu::dot_rows,
      .sum_of_squares = cpu::sum_of_squares,
      .split_masters = cpu::split_masters,
      .join_masters = cpu::join_masters,
      .adamw = cpu::adamw,
      .adamw8 = cpu::adamw8,
      .sgd = cpu::sgd,
      .lion = cpu::lion,
      .encode_blocks = cpu::encode_blocks,
      .decode_blocks = cpu::decode_blocks,
      .add_factor_sums = cpu::add_factor_sums,
      .factor_moment = cpu::factor_moment,
      .factored_squares = cpu::factored_squares,
      .adafactor = cpu::adafactor,
  };
  return table;
}

}  // namespace weft
