// sequence_loss: a loss of whole sequences' log-probabilities, on any cut of the vocabulary.
#pragma once
#include <functional>
#include <span>

#include "weft/autograd/param.h"
#include "weft/parallel/tensor_parallel.h"

namespace weft {

// The log-probabilities of sequences, sums over their targets, to a loss; and, where dlogps is not empty, its
// derivatives. Called once in every forward pass.
using SequenceRule = std::function<double(std::span<const double> logps, std::span<double> dlogps)>;

// hidden[rows, H] of the residual stream -> the rule's loss [1], the same on every rank of the group. starts: where
// sequences begin among the tokens, then their end; host memory, as are the targets, of which -1 is none. The
// gradient is made in the forward pass, times grad_scale, as HeadLossOp's: the head runs twice, and logits never
// exist but for a chunk. weight: [V, H], cut by rows; softcap: of the logits, 0 for none.
Var sequence_loss(const TensorParallel& tensor, Param& weight, float softcap, const int32_t* targets,
                  std::span<const int32_t> starts, const SequenceRule& rule, float grad_scale, const Var& hidden);

}  // namespace weft
