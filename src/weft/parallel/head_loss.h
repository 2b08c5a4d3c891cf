// head_loss: the LM head and its cross-entropy where each rank of a tensor group holds some of the vocabulary.
#pragma once
#include "weft/autograd/param.h"
#include "weft/parallel/tensor_parallel.h"

namespace weft {

// hidden[rows, H] of the residual stream -> the sum over all tokens of -log softmax(x wᵀ)[target], the same on every
// rank of the group; see HeadLossOp for grad_scale and softcap. weight: [V, H], cut by rows.
Var head_loss(const TensorParallel& tensor, Param& weight, float softcap, const int32_t* targets, float grad_scale,
              const Var& hidden);

}  // namespace weft
