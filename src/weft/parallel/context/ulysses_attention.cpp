// Ulysses attention: one call of the kernel for every run of heads.
#include "weft/parallel/context/ulysses_attention.h"

#include "weft/parallel/gradient_or_zeros.h"

namespace weft {

AttentionShape UlyssesAttentionOp::shape(Context& context, const HeadRun& run,
                                         const HeadTrade::Three& tensors) const {
  AttentionShape s = call.rule.shape(context, tensors[0], tensors[1], tensors[2], call.plan.whole());
  if (s.total_heads == 0) s.total_heads = int(heads);
  s.first_head += int(run.first_head);
  return s;
}

Tensor UlyssesAttentionOp::forward(Context& context, const Tensor& q, const Tensor& k, const Tensor& v) {
  heads = q.dim(1), kv_heads = k.dim(1);
  if (v.dim(2) != q.dim(2))
    throw UsageError(
        "mesh.cp_mode = \"ulysses\": the heads' values are {} wide and their keys {}: write \"ring\" or "
        "\"allgather\"",
        v.dim(2), q.dim(2));
  const HeadTrade trade(call, heads, kv_heads);
  const HeadRuns runs = trade.runs();
  qkv = trade.to_heads(context, {q, k, v}, true);
  for (int i = 0; i < runs.count; ++i) {
    const HeadTrade::Three& in = qkv[size_t(i)];
    HeadTrade::Three& out = y_and_lse[size_t(i)];
    out[0] = context.empty_like(in[0]);
    if (context.tape || call.sinks) out[1] = context.empty(Context::wide(q.dtype()), {in[0].dim(1), in[0].dim(0)});
    context.kernels.attention(context.stream, {.y = out[0],
                                               .lse = out[1],
                                               .q = in[0],
                                               .k = in[1],
                                               .v = in[2],
                                               .shape = shape(context, runs[i], in),
                                               .dropout = call.dropout});
    call.sinks.join(context, out[0], out[1], runs[i].first_head);
  }
  return y = trade.to_tokens(context, y_and_lse, false, q.dtype(), q.dim(2))[0];
}

std::array<Tensor, 3> UlyssesAttentionOp::backward(Context& context, const Tensor& dy_in) {
  const HeadTrade trade(call, heads, kv_heads);
  const HeadRuns runs = trade.runs();
  const HeadTrade::Runs dy = trade.to_heads(context, {gradient_or_zeros(context, dy_in, y)}, false);
  HeadTrade::Runs gradients;
  for (int i = 0; i < runs.count; ++i) {
    const HeadTrade::Three& in = qkv[size_t(i)];
    HeadTrade::Three& d = gradients[size_t(i)];
    for (size_t j = 0; j < 3; ++j) d[j] = context.empty_like(in[j]);
    const auto& [out, out_lse, none] = y_and_lse[size_t(i)];
    call.sinks.add_gradient(context, dy[size_t(i)][0], out, out_lse, runs[i].first_head);
    context.kernels.attention_backward(context.stream, {.dq = d[0],
                                                        .dk = d[1],
                                                        .dv = d[2],
                                                        .dy = dy[size_t(i)][0],
                                                        .y = out,
                                                        .lse = out_lse,
                                                        .q = in[0],
                                                        .k = in[1],
                                                        .v = in[2],
                                                        .shape = shape(context, runs[i], in),
                                                        .dropout = call.dropout});
  }
  return trade.to_tokens(context, gradients, true, y.dtype(), y.dim(2));
}

}  // namespace weft
