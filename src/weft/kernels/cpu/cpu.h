// The functions behind the cpu table, one source file per family; contracts are those of kernels.h.
#pragma once
#include "weft/kernels/kernels.h"

namespace weft::cpu {

// matmul.cpp
void matmul(Stream&, const MatmulArgs&);
void matmuls_of_one_a(Stream&, std::span<const MatmulArgs>);
size_t packed_matmul_b_bytes(DType, int64_t k, int64_t n, bool transpose_b);
void pack_matmul_b(Stream&, const Tensor& packed, const Tensor& b, bool transpose_b);

// attention.cpp, attention_backward.cpp
void attention(Stream&, const AttentionArgs&);
void attention_backward(Stream&, const AttentionBackwardArgs&);

// paged_attention.cpp
void paged_attention(Stream&, const PagedAttentionArgs&);

// select_keys.cpp
void select_keys(Stream&, const SelectKeysArgs&);
void mark_keys(Stream&, const Tensor& bits, const Tensor& selected);

// partial_results.cpp
void attention_merge(Stream&, const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse);
void attention_sinks(Stream&, const Tensor& y, const Tensor& lse, const Tensor& sinks);
void attention_sinks_backward(Stream&, const Tensor& dsinks, const Tensor& dy, const Tensor& y, const Tensor& lse,
                              const Tensor& sinks);
void accumulate(Stream&, const Tensor& sum, const Tensor& x);

// rope.cpp
void rope(Stream&, const RopeArgs&);

// heads.cpp
void join_heads(Stream&, const Tensor& y, const Tensor& shared, const Tensor& own);
void take_heads(Stream&, const Tensor& y, const Tensor& x, int64_t first);
void put_heads(Stream&, const Tensor& y, const Tensor& x, int64_t first);
void split_heads(Stream&, const Tensor& dshared, const Tensor& down, const Tensor& dy);

// causal_conv.cpp
void causal_conv(Stream&, const CausalConvArgs&);
void causal_conv_backward(Stream&, const CausalConvBackwardArgs&);

// recurrence.cpp
void recurrence(Stream&, const RecurrenceArgs&);
void recurrence_backward(Stream&, const RecurrenceBackwardArgs&);

// norm.cpp
void norm(Stream&, const NormArgs&);
void norm_backward(Stream&, const NormBackwardArgs&);

// streams.cpp
void read_streams(Stream&, const ReadStreamsArgs&);
void read_streams_backward(Stream&, const ReadStreamsBackwardArgs&);
void write_streams(Stream&, const WriteStreamsArgs&);
void write_streams_backward(Stream&, const WriteStreamsBackwardArgs&);

// activation.cpp
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

// dropout.cpp
void dropout(Stream&, const Tensor& y, const Tensor& x, const DropoutKey&);

// embedding.cpp
void embedding(Stream&, const Tensor& y, const Tensor& table, const TableRows& ids, const Tensor& position_table,
               const int32_t* positions);
void embedding_of_blocks(Stream&, const Tensor& y, const BlockMatrix& table, const TableRows& ids);
void embedding_backward(Stream&, const Tensor& dtable, const Tensor& dy, const TableRows& ids);

// cross_entropy.cpp
void cross_entropy(Stream&, const Tensor& losses, const Tensor& logits, const int32_t* targets, float dlogits_scale);
void cross_entropy_stats(Stream&, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column);
void cross_entropy_combine(Stream&, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                           const int32_t* targets);
void cross_entropy_gradient(Stream&, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float dlogits_scale);

// experts.cpp
void route(Stream&, const RouteArgs&);
void route_backward(Stream&, const RouteBackwardArgs&);
void combine_rows(Stream&, const Tensor& y, const Tensor& x, const RowCopies&, const Tensor& weights);
void combine_rows_backward(Stream&, const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                           const RowCopies&, const Tensor& weights);

// row_codes.cpp
void place_codes(Stream&, const PlaceRowsArgs&);

// elementwise.cpp
void add(Stream&, const Tensor& y, const Tensor& a, const Tensor& b);
void scale(Stream&, const Tensor& y, const Tensor& x, float factor);
void convert(Stream&, const Tensor& y, const Tensor& x);
void place_rows(Stream&, const PlaceRowsArgs&);
void fill(Stream&, const Tensor& y, float value);
void sum_rows(Stream&, const Tensor& y, const Tensor& x, bool accumulate);
double sum_of_squares(Stream&, std::span<const Tensor> xs);

// columns.cpp
void scale_columns(Stream&, const Tensor& y, const Tensor& x, const Tensor& factors);
void dot_columns(Stream&, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate);
void dot_rows(Stream&, const Tensor& y, const Tensor& a, const Tensor& b);

// masters.cpp
void split_masters(Stream&, const Tensor& upper, const Tensor& lower, const Tensor& x);
void join_masters(Stream&, const Tensor& x, const Tensor& upper, const Tensor& lower);

// adamw.cpp
void adamw(Stream&, const AdamWArgs&);

// adamw8.cpp
void adamw8(Stream&, const AdamW8Args&);
void encode_blocks(Stream&, const Tensor& codes, const Tensor& scales, const Tensor& x, bool is_signed);
void decode_blocks(Stream&, const Tensor& x, const Tensor& codes, const Tensor& scales, bool is_signed);

// momentum.cpp
void sgd(Stream&, const SgdArgs&);
void lion(Stream&, const LionArgs&);

// adafactor.cpp
void add_factor_sums(Stream&, const MatrixPiece&);
void factor_moment(Stream&, const FactorMomentArgs&);
double factored_squares(Stream&, const MatrixPiece&);
void adafactor(Stream&, const AdafactorArgs&);

}  // namespace weft::cpu
