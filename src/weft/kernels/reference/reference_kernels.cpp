// The reference table: plain loops in double precision, the oracle of all other backends.
#include "weft/kernels/reference/reference.h"

#include "weft/kernels/grouped_matmul.h"

namespace weft {

const Kernels& reference_kernels() {
  static constexpr Kernels table{
      .name = "reference",
      .matmul = reference::matmul,
      .matmuls_of_one_a = each<reference::matmul>,
      .grouped_matmuls = each_group<each<reference::matmul>>,
      .grouped_gradients = each_gradient<reference::matmul, reference::fill>,
      .multiplies_runs = multiplies_no_runs,
      .packed_matmul_b_bytes = reference::packed_matmul_b_bytes,
      .pack_matmul_b = reference::pack_matmul_b,
      .attention = reference::attention,
      .attention_backward = reference::attention_backward,
      .attention_merge = reference::attention_merge,
      .paged_attention = reference::paged_attention,
      .place_rows = each<reference::place_rows>,
      .rope = each<reference::rope>,
      .join_heads = reference::join_heads,
      .split_heads = reference::split_heads,
      .norm = reference::norm,
      .norm_backward = reference::norm_backward,
      .activation = reference::activation,
      .activation_backward = reference::activation_backward,
      .gated_activation = reference::gated_activation,
      .gated_activation_backward = reference::gated_activation_backward,
      .softcap = reference::softcap,
      .softcap_backward = reference::softcap_backward,
      .dropout = reference::dropout,
      .embedding = reference::embedding,
      .embedding_of_blocks = reference::embedding_of_blocks,
      .embedding_backward = reference::embedding_backward,
      .cross_entropy = reference::cross_entropy,
      .cross_entropy_stats = reference::cross_entropy_stats,
      .cross_entropy_combine = reference::cross_entropy_combine,
      .cross_entropy_gradient = reference::cross_entropy_gradient,
      .route = reference::route,
      .route_backward = reference::route_backward,
      .order_by_group = order_by_group_on_host,
      .combine_rows = reference::combine_rows,
      .combine_rows_backward = reference::combine_rows_backward,
      .add = reference::add,
      .accumulate = reference::accumulate,
      .scale = reference::scale,
      .convert = reference::convert,
      .fill = reference::fill,
      .sum_rows = reference::sum_rows,
      .scale_columns = reference::scale_columns,
      .dot_columns = reference::dot_columns,
      .dot_rows = reference::dot_rows,
      .sum_of_squares = reference::sum_of_squares,
      .split_masters = reference::split_masters,
      .join_masters = reference::join_masters,
      .adamw = reference::adamw,
      .adamw8 = reference::adamw8,
      .sgd = reference::sgd,
      .lion = reference::lion,
      .encode_blocks = reference::encode_blocks,
      .decode_blocks = reference::decode_blocks,
      .add_factor_sums = reference::add_factor_sums,
      .factor_moment = reference::factor_moment,
      .factored_squares = reference::factored_squares,
      .adafactor = reference::adafactor,
  };
  return table;
}

}  // namespace weft
