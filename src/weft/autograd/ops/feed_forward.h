// FeedForward: the whole MLP as one op, so that activations and their gradients are made inside the matrix products.
#pragma once
#include "weft/autograd/ops/linear.h"

namespace weft {

// y = down(f(up(x)))
struct FeedForwardOp {
  static constexpr std::string_view kName = "mlp";
  LinearWeights up, down;
  Activation f;
  Tensor x = {}, pre = {}, act = {}, dpre = {};

  Tensor forward(Context& context, const Tensor& in) {
    x = in;
    Shape shape = x.shape();
    shape[-1] = up.weight->shape[0];
    act = context.empty(x.dtype(), shape);
    pre = linear_forward(context, x, up, {.kind = Epilogue::Kind::activate, .f = f, .act = matrix(act)});
    return linear_forward(context, act, down);
  }
  Tensor backward(Context& context, const Tensor& dy) {
    dpre = context.empty_like(pre);
    linear_backward_input(context, dpre, dy, down, false,
                          {.kind = Epilogue::Kind::activate_backward, .f = f, .pre = matrix(pre)});
    pre = {};
    Tensor dx = context.empty_like(x);
    linear_backward_input(context, dx, dpre, up, false);
    return dx;
  }
  static constexpr int kWeightParts = 2;
  void backward_weight(Context& context, const Tensor& dy, int part) {
    if (part == 0) return linear_backward_weight(context, dy, act, down);
    linear_backward_weight(context, dpre, x, up);
  }

 private:
  static Tensor matrix(const Tensor& t) { return t.reshape({t.rows(), t.cols()}); }
};

// y = down(f(gate(x)) * up(x))
struct GatedFeedForwardOp {
  static constexpr std::string_view kName = "mlp";
  LinearWeights gate, up, down;
  Activation f;
  Tensor x = {}, g = {}, u = {}, act = {}, dg = {}, du = {};

  Tensor forward(Context& context, const Tensor& in) {
    x = in;
    g = linear_output(context, x, gate), act = context.empty_like(g), u = linear_output(context, x, up);
    const std::array products{
        linear_product(context, g, x, gate),
        linear_product(context, u, x, up,
                       {.kind = Epilogue::Kind::gated, .f = f, .act = matrix(act), .gate = matrix(g)})};
    context.kernels.matmuls_of_one_a(context.stream, products);
    return linear_forward(context, act, down);
  }
  Tensor backward(Context& context, const Tensor& dy) {
    dg = context.empty_like(g), du = context.empty_like(u);
    linear_backward_input(
        context, du, dy, down, false,
        {.kind = Epilogue::Kind::gated_backward, .f = f, .gate = matrix(g), .up = matrix(u), .dgate = matrix(dg)});
    g = {}, u = {};
    Tensor dx = context.empty_like(x);
    linear_backward_input(context, dx, dg, gate, false);
    linear_backward_input(context, dx, du, up, true);
    return dx;
  }
  static constexpr int kWeightParts = 3;
  void backward_weight(Context& context, const Tensor& dy, int part) {
    if (part == 0) return linear_backward_weight(context, dy, act, down);
    if (part == 1) return linear_backward_weight(context, dg, x, gate);
    linear_backward_weight(context, du, x, up);
  }

 private:
  static Tensor matrix(const Tensor& t) { return t.reshape({t.rows(), t.cols()}); }
};

}  // namespace weft
