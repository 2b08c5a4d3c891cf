// Linear: y = x wᵀ + b for one weight, or for several weights that read the same input.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

struct LinearWeights {
  Param* weight = nullptr;  // [O, I]
  Param* bias = nullptr;    // [O]
};

// x[..., I] -> y[..., O]
Tensor linear_forward(Context&, const Tensor& x, const LinearWeights&, Epilogue epilogue = {});
// The parts of it, for products that are made together: y without its values, and what makes them.
Tensor linear_output(Context&, const Tensor& x, const LinearWeights&);
MatmulArgs linear_product(Context&, const Tensor& y, const Tensor& x, const LinearWeights&, Epilogue epilogue = {});
// dx[..., I] (+)= dy[..., O] w
void linear_backward_input(Context&, const Tensor& dx, const Tensor& dy, const LinearWeights&, bool accumulate,
                           Epilogue epilogue = {});
// w.grad += dyᵀ x, b.grad += column sums of dy
void linear_backward_weight(Context&, const Tensor& dy, const Tensor& x, const LinearWeights&);

struct LinearOp {
  static constexpr std::string_view kName = "linear";
  LinearWeights w;
  Tensor x = {};

  Tensor forward(Context& context, const Tensor& in) {
    x = in;
    return linear_forward(context, x, w);
  }
  Tensor backward(Context& context, const Tensor& dy) {
    Tensor dx = context.empty_like(x);
    linear_backward_input(context, dx, dy, w, false);
    return dx;
  }
  void backward_weight(Context& context, const Tensor& dy) { linear_backward_weight(context, dy, x, w); }
};

// M weights of one input: the input's gradient is summed inside the matrix products.
template <size_t M>
struct LinearsOp {
  static_assert(M <= kMostMatmulsOfOneA);
  static constexpr std::string_view kName = "linear";
  std::array<LinearWeights, M> w;
  Tensor x = {};

  std::array<Tensor, M> forward(Context& context, const Tensor& in) {
    x = in;
    std::array<Tensor, M> y;
    std::array<MatmulArgs, M> products;
    for (size_t i = 0; i < M; ++i) {
      y[i] = linear_output(context, x, w[i]);
      products[i] = linear_product(context, y[i], x, w[i]);
    }
    context.kernels.matmuls_of_one_a(context.stream, products);
    return y;
  }
  Tensor backward(Context& context, const std::array<Tensor, M>& dy) {
    Tensor dx = context.empty_like(x);
    bool accumulate = false;
    for (size_t i = 0; i < M; ++i)
      if (dy[i]) linear_backward_input(context, dx, dy[i], w[i], std::exchange(accumulate, true));
    return dx;
  }
  void backward_weight(Context& context, const std::array<Tensor, M>& dy) {
    for (size_t i = 0; i < M; ++i)
      if (dy[i]) linear_backward_weight(context, dy[i], x, w[i]);
  }
};

// y = x wᵀ + b in f32 or wider: of weights that are few, whose results choose or gate.
struct WideLinearOp {
  static constexpr std::string_view kName = "wide_linear";
  LinearWeights w;
  Tensor x = {}, rounded = {};  // dy as x is

  Tensor forward(Context& context, const Tensor& in);
  Tensor backward(Context& context, const Tensor& dy);
  void backward_weight(Context& context, const Tensor& dy);
};

inline Var linear(const Var& x, LinearWeights w) { return apply(*x.context, LinearOp{w}, x); }
template <class... W>
auto linears(const Var& x, W... w) {
  return apply(*x.context, LinearsOp<sizeof...(W)>{{w...}}, x);
}

}  // namespace weft
