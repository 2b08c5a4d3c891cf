// token_loss: a loss of single tokens' log-probabilities, or of whole sequences', on any cut of the vocabulary.
#pragma once
#include <functional>
#include <span>

#include "weft/autograd/ops/head_loss.h"
#include "weft/parallel/tensor_parallel.h"

namespace weft {

// The log-probabilities of tokens, [rows] of which those without a target are 0, to a loss; and, where dlogps is not
// empty, its derivatives. Called once in every forward pass.
using TokenRule = std::function<double(std::span<const double> logps, std::span<double> dlogps)>;
// The same of sequences: sums over their targets.
using SequenceRule = TokenRule;

// hidden[rows, H] of the residual stream -> the rule's loss [1], the same on every rank of the group. targets:
// [rows], host memory, of which -1 is none. Logits are divided by the temperature before they become
// probabilities. The gradient is made in the forward pass, times grad_scale, as HeadLossOp's: the head runs twice, on
// rows with targets alone, and logits never exist but for a chunk.
Var token_loss(const TensorParallel& tensor, const HeadView& head, float temperature, const int32_t* targets,
               const TokenRule& rule, float grad_scale, const Var& hidden);
// Tokens of a sequence that are this rank's.
struct SequencePart {
  int64_t sequence = 0, begin = 0, count = 0;
};
// Of a head that scores texts, the same of the scores of targets in place of log-probabilities (score_loss.h).
// spread: the ranks over which sequences are cut. The rule gets the sums of whole ones on each of these, and its loss
// is that of the first of them; that of the others is 0.
Var sequence_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets,
                  std::span<const SequencePart> parts, int64_t num_sequences, Communicator& spread,
                  const SequenceRule& rule, float grad_scale, const Var& hidden);

}  // namespace weft
