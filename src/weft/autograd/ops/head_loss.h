// HeadLoss: the LM head and its cross-entropy, chunk by chunk, so that the logits of a whole batch never exist.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// What makes the logits of rows: x wᵀ + b, perhaps capped.
struct HeadView {
  Param* weight = nullptr;  // [V, H]
  Param* bias = nullptr;    // [V]; null: none
  float softcap = 0;        // logits become cap * tanh(logit / cap); 0: they stay
  // It makes scores of texts (ModelConfig::labels): every rank of a tensor group has all of it, and the first makes
  // the gradients.
  bool scores_texts = false;
};

// The sum over tokens of -log softmax(logits)[target], as a tensor [1] of f32 (f64 beside f64).
// Its gradient is known to be needed times `grad_scale` before the forward pass (1 / tokens of the global batch,
// times the loss scale), so each chunk's gradients are made while its logits are in cache, and the dy that reaches
// the op only says that they are wanted. Source of the chunking: Hsu et al., "Liger Kernel", 2024.
struct HeadLossOp {
  static constexpr std::string_view kName = "head_loss";
  HeadView head;
  const int32_t* targets;  // [T], -1 is ignored; host memory
  float grad_scale;
  Tensor dx = {};

  Tensor forward(Context& context, const Tensor& x);
  Tensor backward(Context&, const Tensor&) { return std::move(dx); }
};

// The pieces of the loop over chunks, for this op and for one whose columns lie on several ranks.
int64_t head_rows_per_chunk(const Context&, int64_t vocab, DType dtype);
// logits[rows, V] of x[rows, H]. Returns a copy of them where the cap's gradient will need it.
Tensor head_logits(Context&, const HeadView& head, const Tensor& logits, const Tensor& x, bool wants_grad);
// scores[rows, labels] of x[rows, H], f32 (f64 beside f64), of a head that scores texts.
Tensor text_scores(Context&, const HeadView& head, const Tensor& x);
// dx[rows, H] = dlogits w, w.grad += dlogitsᵀ x, b.grad += column sums. dlogits, which is overwritten, is that of the
// capped logits.
void head_backward(Context&, const HeadView& head, const Tensor& capped, const Tensor& dx, const Tensor& dlogits,
                   const Tensor& x);

}  // namespace weft
