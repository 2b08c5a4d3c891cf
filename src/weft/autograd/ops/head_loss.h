// HeadLoss: the LM head and its cross-entropy, chunk by chunk, so that the logits of a whole batch never exist.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// The sum over tokens of -log softmax(x wᵀ)[target], as a tensor [1] of f32 (f64 beside f64).
// Its gradient is known to be needed times `grad_scale` before the forward pass (1 / tokens of the global batch,
// times the loss scale), so each chunk's gradients are made while its logits are in cache, and the dy that reaches
// the op only says that they are wanted. Source of the chunking: Hsu et al., "Liger Kernel", 2024.
struct HeadLossOp {
  static constexpr std::string_view kName = "head_loss";
  Param& weight;           // [V, H]
  const int32_t* targets;  // [T], -1 is ignored; host memory
  float grad_scale;
  float softcap = 0;  // of the logits; 0: none
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x);
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }
};

// The pieces of the loop over chunks, for this op and for one whose columns lie on several ranks.
int64_t head_rows_per_chunk(const Context&, int64_t vocab, DType dtype);
// logits[rows, V] = x[rows, H] wᵀ, capped. Returns a copy of them where the cap's gradient will need it.
Tensor head_logits(Context&, Param& weight, float softcap, const Tensor& logits, const Tensor& x, bool wants_grad);
// dx[rows, H] = dlogits w, and w.grad += dlogitsᵀ x. dlogits, which is overwritten, is that of the capped logits.
void head_backward(Context&, Param& weight, float softcap, const Tensor& capped, const Tensor& dx,
                   const Tensor& dlogits, const Tensor& x);

}  // namespace weft
