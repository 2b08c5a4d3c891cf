// Lora: what a low-rank adapter adds to the output of a linear layer.
#pragma once
#include "weft/autograd/ops/dropout.h"
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// Dropout of an input of which this rank may have some columns only: elements count as in all columns.
struct LoraDropout {
  DropoutKey key = {};                    // p 0: none
  std::span<const TokenSpan> spans = {};  // where rows stand; host memory that outlives the tape
  int64_t first_column = 0, columns = 0;  // of this rank's, and of all

  // x itself without dropout
  Tensor operator()(Context& context, const Tensor& x) const;
};

// y + scale * drop(x) aᵀ bᵀ. y, perhaps in a wider dtype than x, is written where nobody else has it.
struct LoraOp {
  static constexpr std::string_view kName = "lora";
  Param& a;  // [r, I]
  Param& b;  // [O, r]
  float scale;
  LoraDropout dropout;
  // h = scale * drop(x) aᵀ [T, r], dh = scale * dy b [T, r], and rounded: dy in the dtype of x
  Tensor x = {}, h = {}, dh = {}, rounded = {};

  Tensor forward(Context& context, const Tensor& y, const Tensor& in);
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy);
  void backward_weight(Context& context, const Tensor& dy);
};

}  // namespace weft
