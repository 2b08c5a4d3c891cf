// HeadLoss: the loop over chunks.
#include "weft/autograd/ops/head_loss.h"

#include <algorithm>

namespace weft {

int64_t head_rows_per_chunk(const Context& context, int64_t vocab, DType dtype) {
  // Chunks are so tall that the gradient of the weight, which every chunk reads and writes once, is a small part of
  // the traffic. On the CPU, whose table packs weights, logits are of the order of a last-level cache and stay near
  // it; a device multiplies a hundred times as fast, so that rows have to be some thousands.
  const bool is_cpu = context.kernels.packed_matmul_b_bytes(DType::f32, 1024, 1024, true) > 0;
  const int64_t logits_bytes = int64_t(is_cpu ? 64 : 1024) << 20;
  return std::max<int64_t>(64, logits_bytes / (vocab * int64_t(size_of(dtype))) / 64 * 64);
}

Tensor head_logits(Context& context, const HeadView& head, const Tensor& logits, const Tensor& x, bool wants_grad) {
  const Kernels& k = context.kernels;
  Param& weight = *head.weight;
  k.matmul(context.stream, {.y = logits,
                            .a = x,
                            .b = weight.value,
                            .transpose_b = true,
                            .packed_b = weight.packed(context, true),
                            .blocks_b = weight.blocks(),
                            .epilogue = {.bias = head.bias ? head.bias->value : Tensor()}});
  if (head.softcap == 0) return {};
  k.softcap(context.stream, logits, logits, head.softcap);
  if (!wants_grad) return {};
  Tensor capped = context.empty_like(logits);
  k.convert(context.stream, capped, logits);
  return capped;
}

Tensor text_scores(Context& context, const HeadView& head, const Tensor& x) {
  Tensor scores = context.empty(Context::wide(x.dtype()), {x.rows(), head.weight->shape[0]});
  head_logits(context, head, scores, x, false);
  return scores;
}

void head_backward(Context& context, const HeadView& head, const Tensor& capped, const Tensor& dx,
                   const Tensor& dlogits, const Tensor& x) {
  const Kernels& k = context.kernels;
  Param& weight = *head.weight;
  if (head.softcap > 0) k.softcap_backward(context.stream, dlogits, dlogits, capped, head.softcap);
  k.matmul(context.stream, {.y = dx, .a = dlogits, .b = weight.value, .packed_b = weight.packed(context, false)});
  if (weight.trainable)
    k.matmul(context.stream,
             {.y = weight.grad, .a = dlogits, .b = x, .transpose_a = true, .accumulate = weight.accumulate_next()});
  if (head.bias && head.bias->trainable)
    k.sum_rows(context.stream, head.bias->grad, dlogits, head.bias->accumulate_next());
}

Tensor HeadLossOp::forward(Context& context, const Tensor& x) {
  const Kernels& k = context.kernels;
  const int64_t num_tokens = x.rows(), vocab = head.weight->shape[0];
  const int64_t chunk = std::min(num_tokens, head_rows_per_chunk(context, vocab, x.dtype()));
  const bool wants_grad = context.tape && grad_scale != 0;
  const Tensor losses = context.empty(Context::wide(x.dtype()), {num_tokens, 1});
  const Tensor logits_buffer = context.empty(x.dtype(), {chunk, vocab});
  if (wants_grad) dx = context.empty_like(x);
  for (int64_t begin = 0; begin < num_tokens; begin += chunk) {
    const int64_t rows = std::min(chunk, num_tokens - begin);
    const Tensor logits = logits_buffer.slice_rows(0, rows), x_chunk = x.slice_rows(begin, rows);
    const Tensor capped = head_logits(context, head, logits, x_chunk, wants_grad);
    k.cross_entropy(context.stream, losses.slice_rows(begin, rows).reshape({rows}), logits, targets + begin,
                    wants_grad ? grad_scale : 0);
    if (wants_grad) head_backward(context, head, capped, dx.slice_rows(begin, rows), logits, x_chunk);
  }
  Tensor loss = context.empty(losses.dtype(), {1});
  k.sum_rows(context.stream, loss, losses, false);
  return loss;
}

}  // namespace weft
