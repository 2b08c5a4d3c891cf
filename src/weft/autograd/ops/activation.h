// Activation and gated activation (SwiGLU and its kin).
#pragma once
#include "weft/autograd/tape.h"

namespace weft {

// y = f(x)
struct ActivationOp {
  static constexpr std::string_view kName = "activation";
  Activation f;
  Tensor x = {};

  Tensor forward(Context& context, const Tensor& in) {
    x = in;
    Tensor y = context.empty_like(x);
    context.kernels.activation(context.stream, y, x, f);
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    Tensor dx = context.empty_like(x);
    context.kernels.activation_backward(context.stream, dx, dy, x, f);
    return dx;
  }
};

// y = f(gate) * up. Source: Shazeer, "GLU Variants Improve Transformer", 2020.
struct GatedActivationOp {
  static constexpr std::string_view kName = "activation";
  Activation f;
  Tensor gate = {}, up = {};

  Tensor forward(Context& context, const Tensor& g, const Tensor& u) {
    gate = g, up = u;
    Tensor y = context.empty_like(g);
    context.kernels.gated_activation(context.stream, y, gate, up, f);
    return y;
  }
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy) {
    std::array<Tensor, 2> dx{context.empty_like(gate), context.empty_like(up)};
    context.kernels.gated_activation_backward(context.stream, dx[0], dx[1], dy, gate, up, f);
    return dx;
  }
};

inline Var activation(const Var& x, Activation f) { return apply(*x.context, ActivationOp{f}, x); }
inline Var gated_activation(const Var& gate, const Var& up, Activation f) {
  return apply(*gate.context, GatedActivationOp{f}, gate, up);
}

}  // namespace weft
