// distill_loss: cross-entropy mixed with the distance from a teacher's distribution, on any cut of the vocabulary.
#pragma once
#include "weft/autograd/ops/head_loss.h"
#include "weft/parallel/tensor_parallel.h"

namespace weft {

// What the teacher says of the same tokens, as the residual stream inside its head's region.
struct TeacherView {
  HeadView head;  // of [V, its H], cut as the student's
  Tensor hidden;  // [T, its H]
};
struct DistillMix {
  float alpha = 0.5f, temperature = 1;
};

// hidden[rows, H] of the residual stream -> the sum over tokens with a target of
//   (1 - alpha) CE + alpha temperature^2 KL(teacher || student), distributions at the temperature;
// the same on every rank. The gradient is made in the forward pass, as HeadLossOp's; logits exist only by chunks, and
// ranks exchange a few numbers a token. Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.
Var distill_loss(const TensorParallel& tensor, const HeadView& head, const int32_t* targets,
                 const TeacherView& teacher, const DistillMix& mix, float grad_scale, const Var& hidden);

}  // namespace weft
