// Dora: a linear layer whose adapted weight has rows of trained lengths.
#pragma once
#include "weft/autograd/ops/lora.h"
#include "weft/comm/communicator.h"

namespace weft {

// y = x wᵀ becomes (y + scale * drop(x) aᵀ bᵀ) * magnitude / norm, where norm[o] is the length of row o of
// w + scale * b a. As in the paper's section 4.3 the norm takes no gradient. Source: Liu et al., "DoRA", 2024.
struct DoraOp {
  static constexpr std::string_view kName = "dora";
  Param& weight;     // [O, I], frozen
  Param& a;          // [r, I]
  Param& b;          // [O, r]
  Param& magnitude;  // [O]
  float scale;
  LoraDropout dropout;
  Communicator* inputs;  // among whom the columns of the weight are cut; null: they are all here
  Tensor x = {}, h = {}, sum = {}, inverse_norm = {}, factor = {};  // sum: before it is scaled; f32 [O]: the last two
  Tensor dsum = {}, dh = {};                                        // dsum: in the dtype of x

  Tensor forward(Context& context, const Tensor& y, const Tensor& in);
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy);
  void backward_weight(Context& context, const Tensor& dy);

 private:
  void find_norms(Context& context);
};

// y + bias, in place where nobody else has y; for a bias that is frozen.
struct FrozenBiasOp {
  static constexpr std::string_view kName = "bias";
  Param& bias;  // [O]

  Tensor forward(Context& context, const Tensor& y);
  Tensor backward(Context&, const Tensor& dy) { return dy; }
};

}  // namespace weft
