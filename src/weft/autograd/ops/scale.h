// Scale and Softcap: y = factor x, and y = cap tanh(x / cap).
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

struct ScaleOp {
  static constexpr std::string_view kName = "scale";
  float factor;

  Tensor forward(Context& context, const Tensor& x) { return times_factor(context, x); }
  Tensor backward(Context& context, const Tensor& dy) { return times_factor(context, dy); }

 private:
  Tensor times_factor(Context& context, const Tensor& x) const {
    Tensor y = context.empty_like(x);
    context.kernels.scale(context.stream, y, x, factor);
    return y;
  }
};

// No op where the factor is 1.
inline Var scaled(const Var& x, float factor) { return factor == 1 ? x : apply(*x.context, ScaleOp{factor}, x); }

struct SoftcapOp {
  static constexpr std::string_view kName = "softcap";
  float cap;
  Tensor y = {};

  Tensor forward(Context& context, const Tensor& x) {
    y = context.empty_like(x);
    context.kernels.softcap(context.stream, y, x, cap);
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    Tensor dx = context.empty_like(y);
    context.kernels.softcap_backward(context.stream, dx, dy, y, cap);
    return dx;
  }
};

}  // namespace weft
