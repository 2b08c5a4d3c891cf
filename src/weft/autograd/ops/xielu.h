// xIELU: an activation with two numbers that each layer learns; see Kernels::xielu.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// x [T, C]; positive and negative [1].
struct XieluOp {
  static constexpr std::string_view kName = "activation";
  Param &positive, &negative;
  Tensor x = {};

  Tensor forward(Context& context, const Tensor& in) {
    x = in;
    Tensor y = context.empty_like(x);
    context.kernels.xielu(context.stream, y, x, positive.value, negative.value);
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    Tensor dx = context.empty_like(x), dpositive, dnegative;
    if (positive.trainable) {
      const DType wide = Context::wide(x.dtype());
      dpositive = context.empty(wide, {x.rows(), 1}), dnegative = context.empty(wide, {x.rows(), 1});
    }
    context.kernels.xielu_backward(context.stream, dx, dpositive, dnegative, dy, x, positive.value, negative.value);
    if (positive.trainable) {
      context.kernels.sum_rows(context.stream, positive.grad, dpositive, positive.accumulate_next());
      context.kernels.sum_rows(context.stream, negative.grad, dnegative, negative.accumulate_next());
    }
    return dx;
  }
};

}  // namespace weft
