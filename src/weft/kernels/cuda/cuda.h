// The functions behind the cuda table, one source file per family; contracts are those of kernels.h.
#pragma once
#include "weft/kernels/kernels.h"

namespace weft::cuda {

// matmul.cu, matmul_few.cu
void matmul(Stream&, const MatmulArgs&);
void matmuls_of_one_a(Stream&, std::span<const MatmulArgs>);
size_t packed_matmul_b_bytes(DType, int64_t k, int64_t n, bool transpose_b);
void pack_matmul_b(Stream&, const Tensor& packed, const Tensor& b, bool transpose_b);

// grouped_matmul.cpp
void grouped_matmuls(Stream&, std::span<const GroupedMatmulArgs>);
void grouped_gradients(Stream&, const GroupedGradientArgs&);
bool multiplies_runs(int64_t rows, int64_t groups, int64_t n, int64_t k, bool is_in_blocks);

// attention.cu, attention_backward.cu
void attention(Stream&, const AttentionArgs&);
void attention_backward(Stream&, const AttentionBackwardArgs&);

// paged_attention.cu
void paged_attention(Stream&, const PagedAttentionArgs&);

// select_keys.cu
void select_keys(Stream&, const SelectKeysArgs&);

// mark_keys.cu
void mark_keys(Stream&, const Tensor& bits, const Tensor& selected);

// attention_merge.cu
void attention_merge(Stream&, const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse);

// attention_sinks.cu
void attention_sinks(Stream&, const Tensor& y, const Tensor& lse, const Tensor& sinks);
void attention_sinks_backward(Stream&, const Tensor& dsinks, const Tensor& dy, const Tensor& y, const Tensor& lse,
                              const Tensor& sinks);

// rope.cu
void rope(Stream&, std::span<const RopeArgs>);

// heads.cu
void join_heads(Stream&, const Tensor& y, const Tensor& shared, const Tensor& own);
void take_heads(Stream&, const Tensor& y, const Tensor& x, int64_t first);
void put_heads(Stream&, const Tensor& y, const Tensor& x, int64_t first);
void split_heads(Stream&, const Tensor& dshared, const Tensor& down, const Tensor& dy);

// causal_conv.cu
void causal_conv(Stream&, const CausalConvArgs&);
void causal_conv_backward(Stream&, const CausalConvBackwardArgs&);

// recurrence.cu, recurrence_backward.cu
void recurrence(Stream&, const RecurrenceArgs&);
void recurrence_backward(Stream&, const RecurrenceBackwardArgs&);

// norm.cu
void norm(Stream&, const NormArgs&);
void norm_backward(Stream&, const NormBackwardArgs&);
void read_streams(Stream&, const ReadStreamsArgs&);
void read_streams_backward(Stream&, const ReadStreamsBackwardArgs&);
void write_streams(Stream&, const WriteStreamsArgs&);
void write_streams_backward(Stream&, const WriteStreamsBackwardArgs&);

// activation.cu
void activation(Stream&, const Tensor& y, const Tensor& x, Activation);
void activation_backward(Stream&, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation);
void gated_activation(Stream&, const Tensor& y, const Tensor& gate, const Tensor& up, Activation);
void gated_activation_backward(Stream&, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                               const Tensor& up, Activation);
void xielu(Stream&, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative);
void xielu_backward(Stream&, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative, const Tensor& dy,
                    const Tensor& x, const Tensor& positive, const Tensor& negative);
void softcap(Stream&, const Tensor& y, const Tensor& x, float cap);
void softcap_backward(Stream&, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap);

// dropout.cu
void dropout(Stream&, const Tensor& y, const Tensor& x, const DropoutKey&);

// embedding.cu
void embedding(Stream&, const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
               const int32_t* positions);
void embedding_of_blocks(Stream&, const Tensor& y, const BlockMatrix& table, const TableRows& ids);
void embedding_backward(Stream&, const Tensor& dtable, const Tensor& dy, const TableRows& ids);

// cross_entropy.cu
void cross_entropy(Stream&, const Tensor& losses, const Tensor& logits, const int32_t* targets, float dlogits_scale);
void cross_entropy_stats(Stream&, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column);
void cross_entropy_combine(Stream&, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                           const int32_t* targets);
void cross_entropy_gradient(Stream&, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float dlogits_scale);

// route.cu, experts.cu
void route(Stream&, const RouteArgs&);
void route_backward(Stream&, const RouteBackwardArgs&);

// token_choice.cu
void find_tokens(Stream&, const FindTokensArgs&);
void place_tokens(Stream&, const Tensor& ids, const int32_t* said, const Tensor& found);

// group_order.cu
void order_by_group(Stream&, const GroupOrderArgs&);
void combine_rows(Stream&, const Tensor& y, const Tensor& x, const RowCopies&, const Tensor& weights);
void combine_rows_backward(Stream&, const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                           const RowCopies&, const Tensor& weights);

// place_rows.cu
void place_rows(Stream&, std::span<const PlaceRowsArgs>);

// elementwise.cu
void add(Stream&, const Tensor& y, const Tensor& a, const Tensor& b);
void accumulate(Stream&, const Tensor& sum, const Tensor& x);
void scale(Stream&, const Tensor& y, const Tensor& x, float factor);
void convert(Stream&, const Tensor& y, const Tensor& x);
void fill(Stream&, const Tensor& y, float value);

// columns.cu
void sum_rows(Stream&, const Tensor& y, const Tensor& x, bool accumulate);
void scale_columns(Stream&, const Tensor& y, const Tensor& x, const Tensor& factors);
void dot_columns(Stream&, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate);
void dot_rows(Stream&, const Tensor& y, const Tensor& a, const Tensor& b);

// squares.cu
double sum_of_squares(Stream&, std::span<const Tensor> xs);

// masters.cu
void split_masters(Stream&, const Tensor& upper, const Tensor& lower, const Tensor& x);
void join_masters(Stream&, const Tensor& x, const Tensor& upper, const Tensor& lower);

// adamw.cu
void adamw(Stream&, const AdamWArgs&);

// adamw8.cu
void adamw8(Stream&, const AdamW8Args&);
void encode_blocks(Stream&, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed);
void decode_blocks(Stream&, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed);

// momentum.cu
void sgd(Stream&, const SgdArgs&);
void lion(Stream&, const LionArgs&);

// adafactor.cu
void add_factor_sums(Stream&, const MatrixPiece&);
void factor_moment(Stream&, const FactorMomentArgs&);
double factored_squares(Stream&, const MatrixPiece&);
void adafactor(Stream&, const AdafactorArgs&);

}  // namespace weft::cuda
