// Gathered attention: all keys and values in the order of their tokens, and the sum of their gradients.
#include "weft/parallel/context/gathered_attention.h"

#include "weft/parallel/context/copy_heads.h"
#include "weft/parallel/gradient_or_zeros.h"

namespace weft {

// From the ranks' parts to the order of tokens.
Tensor GatheredAttentionOp::gather(Context& context, const Tensor& part) const {
  const ContextLayout& layout = call.plan.layout();
  const Tensor parts = context.empty(part.dtype(), {layout.num_all_tokens(), part.dim(1), part.dim(2)});
  call.parallel.group.all_gather(parts, part);
  if (layout.size() == 1) return parts;
  Tensor whole = context.empty_like(parts);
  for (int rank = 0; rank < layout.size(); ++rank) {
    layout.for_each_span(rank, [&](const TokenSpan& span) {
      copy_heads(context.stream, {whole, span.first_token}, {parts, rank * layout.num_tokens() + span.begin},
                 span.count, part.dim(1));
    });
  }
  return whole;
}

// The other way: this rank's part of the sum over ranks.
Tensor GatheredAttentionOp::scatter_sum(Context& context, const Tensor& whole, const Tensor& like) const {
  const ContextLayout& layout = call.plan.layout();
  if (layout.size() == 1) return whole;
  const Tensor parts = context.empty_like(whole);
  for (int rank = 0; rank < layout.size(); ++rank) {
    layout.for_each_span(rank, [&](const TokenSpan& span) {
      copy_heads(context.stream, {parts, rank * layout.num_tokens() + span.begin}, {whole, span.first_token},
                 span.count, whole.dim(1));
    });
  }
  Tensor part = context.empty_like(like);
  call.parallel.group.reduce_scatter(part, parts);
  return part;
}

Tensor GatheredAttentionOp::forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in) {
  q = q_in, k = k_in, v = v_in;
  y = context.empty(q.dtype(), {q.dim(0), q.dim(1), v.dim(2)});
  if (context.tape || call.sinks) lse = context.empty(Context::wide(q.dtype()), {q.dim(1), q.dim(0)});
  context.kernels.attention(context.stream, {.y = y,
                                             .lse = lse,
                                             .q = q,
                                             .k = gather(context, k),
                                             .v = gather(context, v),
                                             .shape = call.rule.shape(context, q, k, v, call.plan.gathered()),
                                             .dropout = call.dropout});
  call.sinks.join(context, y, lse);
  return y;
}

std::array<Tensor, 3> GatheredAttentionOp::backward(Context& context, const Tensor& dy_in) {
  const Tensor dy = gradient_or_zeros(context, dy_in, y);
  call.sinks.add_gradient(context, dy, y, lse);
  const Tensor keys = gather(context, k), values = gather(context, v);
  const Tensor dq = context.empty_like(q), dk = context.empty_like(keys), dv = context.empty_like(values);
  context.kernels.attention_backward(context.stream,
                                     {.dq = dq,
                                      .dk = dk,
                                      .dv = dv,
                                      .dy = dy,
                                      .y = y,
                                      .lse = lse,
                                      .q = q,
                                      .k = keys,
                                      .v = values,
                                      .shape = call.rule.shape(context, q, k, v, call.plan.gathered()),
                                      .dropout = call.dropout});
  return {dq, scatter_sum(context, dk, k), scatter_sum(context, dv, v)};
}

}  // namespace weft
