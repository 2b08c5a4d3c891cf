// Arguments of the optimizers' kernels. Masters, gradients and states are f32 (f64 beside f64), a gradient is
// multiplied by grad_scale (clipping and unscaling) and left unchanged, and weight decay is decoupled:
// master -= lr * (update + weight_decay * master). `value` is the weight in the compute dtype: none where that is the
// master's, a copy of the master in f16, or in bf16 its upper half: then `master` is the lower one, u16, and both are
// read and written (master_halves.h).
#pragma once
#include "weft/tensor/tensor.h"

namespace weft {

struct AdamWArgs {
  Tensor master, value;  // [n]
  Tensor m, v;           // [n] f32
  Tensor grad;           // [n] f32, or of the value's dtype; unchanged
  float grad_scale = 1;  // multiplies grad: clipping and unscaling
  float lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float bias_correction1 = 1, bias_correction2 = 1;  // 1 - beta^step
};

// AdamW with moments of 8 bits, in blocks of block_codes::kBlock elements from element 0 on, each scaled by its
// largest magnitude. A second moment that is not zero is never rounded to zero.
struct AdamW8Args {
  AdamWArgs adamw;          // m and v are empty
  Tensor m, v;              // [n] u8
  Tensor m_scale, v_scale;  // [blocks of n] f32
};

// m = momentum * m + g; the update is m, or g + momentum * m with nesterov. Without m the update is g.
struct SgdArgs {
  Tensor master, value;  // [n]
  Tensor m;              // [n], optional
  Tensor grad;
  float grad_scale = 1, lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
};

// c = beta1 * m + (1 - beta1) * g; the update is c / (|c| + softness), which is sign(c) without softness;
// then m = beta2 * m + (1 - beta2) * g.
struct LionArgs {
  Tensor master, value, m, grad;
  float grad_scale = 1, lr = 0, beta1 = 0.9f, beta2 = 0.99f, weight_decay = 0, softness = 0;
};

// Elements [first, first + x.numel()) of a row-major matrix of rows.numel() x cols.numel().
struct MatrixPiece {
  Tensor x;     // [n]
  float scale;  // multiplies x
  int64_t first;
  Tensor rows, cols;  // one number for every row and column
};

// The update is g * rows * cols * factor.
struct AdafactorArgs {
  Tensor master, value;  // [n]
  MatrixPiece grad;
  float lr = 0, factor = 1, weight_decay = 0;
};

// moment = beta * moment + (1 - beta) * (sums / count + eps), and sums become 1 / sqrt(moment), or
// sqrt(mean(moment) / moment).
struct FactorMomentArgs {
  Tensor moment, sums;  // [n]
  float count = 1, beta = 0, eps = 0;
  bool is_normalised = false;
};

}  // namespace weft
