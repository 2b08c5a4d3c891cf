// head_loss: the LM head and its cross-entropy where each rank of a tensor group holds some of the vocabulary.
#pragma once
#include "weft/autograd/ops/head_loss.h"
#include "weft/parallel/tensor_parallel.h"

namespace weft {

// hidden[rows, H] of the residual stream -> the sum over all tokens of -log softmax(logits)[target], the same on
// every rank of the group; see HeadLossOp for grad_scale. head: weight and bias are cut by rows, but for one that
// scores texts.
Var head_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets, float grad_scale,
              const Var& hidden);

}  // namespace weft
