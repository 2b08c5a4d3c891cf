// score_loss: a loss of the scores that a model with labels makes of texts.
#pragma once
#include "weft/autograd/ops/head_loss.h"
#include "weft/parallel/tensor_parallel.h"
#include "weft/parallel/token_loss.h"

namespace weft {

// hidden[rows, H] of the residual stream -> the rule's loss [1], the same on every rank of the group, of the score of
// each row's target, a label, [rows] in host memory: of rows where it is -1 the rule sees 0. Scores are f32 (f64
// beside f64) whatever the dtype of hidden. The gradient is made in the forward pass, times grad_scale.
Var score_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets, const TokenRule& rule,
               float grad_scale, const Var& hidden);

// Of rows with a target, how many there are, and of how many no label has a higher score and none before it as high a
// one.
struct RightTargets {
  int64_t right = 0, all = 0;
};
// What head_loss gives, without a gradient; and these rows are counted.
Var measured_classes(const TensorParallel& tensor, const HeadView& head, const int32_t* targets, const Var& hidden,
                     RightTargets& counted);

// Throws Error where a target, [rows] in host memory, is no label: data may be anybody's.
void check_labels(const HeadView& head, const int32_t* targets, int64_t rows);

}  // namespace weft
