// Shape checks: what every kernel of the table demands of its arguments, said once for the backends that check.
#pragma once
#include <algorithm>

#include "weft/kernels/kernels.h"

namespace weft::shapes {

// Each throws Error "op: tensor is ..., but must be ...". Host arrays of ids and spans are read; tensors are not.
void check_matmul(const MatmulArgs&);
void check_matmuls_of_one_a(std::span<const MatmulArgs>);
void check_attention(const AttentionArgs&);
void check_attention_backward(const AttentionBackwardArgs&);
void check_attention_merge(const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse);
void check_attention_sinks(std::string_view op, const Tensor& y, const Tensor& lse, const Tensor& sinks);
void check_attention_sinks_backward(const Tensor& dsinks, const Tensor& dy, const Tensor& y, const Tensor& lse,
                                    const Tensor& sinks);
void check_paged_attention(const PagedAttentionArgs&);
void check_select_keys(const SelectKeysArgs&);
void check_mark_keys(const Tensor& bits, const Tensor& selected);
void check_place_rows(const PlaceRowsArgs&);
void check_accumulate(const Tensor& sum, const Tensor& x);
void check_rope(const RopeArgs&);
// by_token [T, N, W], of which by_head [N, T, D] are elements [first, first + D).
void check_part_of_heads(std::string_view op, const Tensor& by_token, const Tensor& by_head, int64_t first);
void check_join_heads(std::string_view op, const Tensor& y, const Tensor& shared, const Tensor& own);
void check_causal_conv(const CausalConvArgs&);
void check_causal_conv_backward(const CausalConvBackwardArgs&);
void check_recurrence(const RecurrenceArgs&);
void check_recurrence_backward(const RecurrenceBackwardArgs&);
void check_norm(const NormArgs&);
void check_norm_backward(const NormBackwardArgs&);
void check_read_streams(const ReadStreamsArgs&);
void check_read_streams_backward(const ReadStreamsBackwardArgs&);
void check_write_streams(const WriteStreamsArgs&);
void check_write_streams_backward(const WriteStreamsBackwardArgs&);
void check_xielu(const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative);
void check_xielu_backward(const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative, const Tensor& dy,
                          const Tensor& x, const Tensor& positive, const Tensor& negative);
void check_dropout(const Tensor& y, const Tensor& x, const DropoutKey&);
void check_embedding(const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
                     const int32_t* positions);
void check_embedding_of_blocks(const Tensor& y, const BlockMatrix& table, const TableRows& ids);
void check_embedding_backward(const Tensor& dtable, const Tensor& dy, const TableRows& ids);
void check_cross_entropy(const Tensor& losses, const Tensor& logits, const int32_t* targets);
void check_cross_entropy_stats(const Tensor& stats, const Tensor& logits, const int32_t* targets,
                               int64_t first_column);
void check_cross_entropy_combine(const Tensor& losses, const Tensor& lse, const Tensor& stats);
void check_cross_entropy_gradient(const Tensor& logits, const Tensor& lse, const Tensor& factors,
                                  const int32_t* targets, int64_t first_column);
void check_find_tokens(const FindTokensArgs&);
void check_place_tokens(const Tensor& ids, const int32_t* said, const Tensor& found);
void check_route(const RouteArgs&);
void check_route_backward(const RouteBackwardArgs&);
void check_order_by_group(const GroupOrderArgs& args);
void check_combine_rows(const Tensor& y, const Tensor& x, const RowCopies&, const Tensor& weights);
void check_combine_rows_backward(const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                                 const RowCopies&, const Tensor& weights);
void check_convert(const Tensor& y, const Tensor& x);
void check_fill(const Tensor& y);
void check_sum_rows(const Tensor& y, const Tensor& x);
void check_scale_columns(const Tensor& y, const Tensor& x, const Tensor& factors);
void check_dot_columns(const Tensor& y, const Tensor& a, const Tensor& b);
void check_dot_rows(const Tensor& y, const Tensor& a, const Tensor& b);
void check_sum_of_squares(std::span<const Tensor> xs);
void check_halves(std::string_view op, const Tensor& upper, const Tensor& lower, const Tensor& x);
void check_adamw(const AdamWArgs&);
void check_adamw8(const AdamW8Args&);
void check_sgd(const SgdArgs&);
void check_lion(const LionArgs&);
void check_blocks(std::string_view op, const Tensor& codes, const Tensor& scales, const Tensor& x);
void check_matrix_piece(std::string_view op, const MatrixPiece&);
void check_factor_moment(const FactorMomentArgs&);
void check_adafactor(const AdafactorArgs&);

struct Named {
  std::string_view name;
  const Tensor& tensor;
};

// All tensors are floats of one shape and one dtype, those of the first: the element-wise ops.
void check_alike(std::string_view op, std::initializer_list<Named> tensors);

constexpr int64_t kMaxKeys = int64_t(1) << 24;  // of one sequence: the index of dropout has room for no more

// How far behind a query row the first key of its span stands; rows are counted inside the span.
inline int64_t first_distance(const AttentionSpan& a, int64_t query) {
  return int64_t(a.q_end - a.q_begin) - query - a.lead - (a.k_end - a.k_begin);
}

// The keys of its span that a query row sees; rows and keys are counted inside the span.
struct VisibleKeys {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};
inline VisibleKeys visible_keys(const AttentionSpan& a, int window, int64_t query) {
  const int64_t num_keys = a.k_end - a.k_begin, diagonal = query + 1 + num_keys - (a.q_end - a.q_begin);
  const int64_t end = a.causal ? std::clamp<int64_t>(diagonal, 0, num_keys) : num_keys;
  return {window > 0 ? std::clamp<int64_t>(diagonal + a.lead - window, 0, end) : 0, end};
}

// Which rows see which keys, when its keys are counted by themselves.
inline AttentionSpan span_of(const PagedSequence& s) {
  return {.q_begin = s.q_begin, .q_end = s.q_end, .k_begin = 0, .k_end = s.num_keys};
}

// Attention's shape without spans.
inline AttentionShape shape_of(const PagedAttentionArgs& args) {
  return {.num_heads = int(args.q.dim(1)),
          .num_kv_heads = int(args.keys.dim(2)),
          .head_dim = int(args.q.dim(2)),
          .scale = args.scale,
          .softcap = args.softcap,
          .window = args.window,
          .value_dim = int(args.y.dim(2))};
}

}  // namespace weft::shapes
