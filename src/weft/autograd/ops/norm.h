// Norm: RMSNorm or LayerNorm, alone or fused with the residual addition before it.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

struct NormWeights {
  NormKind kind = NormKind::rms;
  Param* weight = nullptr;  // [H]
  Param* bias = nullptr;    // [H]
  float eps = 1e-5f;
  float weight_offset = 0;
};

// What a norm keeps for its backward, shared by the ops below.
class NormState {
 public:
  explicit NormState(const NormWeights& w) : w_(w) {}
  // y = norm(x + residual); `sum` receives x + residual. residual and sum may be empty.
  Tensor forward(Context&, const Tensor& x, const Tensor& residual, const Tensor& sum);
  // d(x), with dsum, the gradient that goes around the norm, added; dsum may be empty.
  Tensor backward(Context&, const Tensor& dy, const Tensor& dsum);

 private:
  NormWeights w_;
  Tensor x_, mean_, rstd_;
};

// y = norm(x)
struct NormOp {
  static constexpr std::string_view kName = "norm";
  NormState state;

  Tensor forward(Context& context, const Tensor& x) { return state.forward(context, x, {}, {}); }
  Tensor backward(Context& context, const Tensor& dy) { return state.backward(context, dy, {}); }
};

// {x, norm(x)}: the start of a residual branch; the gradients of both meet inside the norm's backward.
struct BranchNormOp {
  static constexpr std::string_view kName = "norm";
  NormState state;

  std::array<Tensor, 2> forward(Context& context, const Tensor& x) { return {x, state.forward(context, x, {}, {})}; }
  Tensor backward(Context& context, const std::array<Tensor, 2>& dy) { return state.backward(context, dy[1], dy[0]); }
};

// {x + branch, norm(x + branch)}
struct AddNormOp {
  static constexpr std::string_view kName = "norm";
  NormState state;

  std::array<Tensor, 2> forward(Context& context, const Tensor& x, const Tensor& branch) {
    Tensor sum = context.empty_like(x);
    Tensor y = state.forward(context, x, branch, sum);
    return {std::move(sum), std::move(y)};
  }
  std::array<Tensor, 2> backward(Context& context, const std::array<Tensor, 2>& dy) {
    Tensor dx = state.backward(context, dy[1], dy[0]);
    return {dx, dx};
  }
};

inline Var norm(const Var& x, const NormWeights& w) { return apply(*x.context, NormOp{NormState(w)}, x); }
inline std::array<Var, 2> branch_norm(const Var& x, const NormWeights& w) {
  return apply(*x.context, BranchNormOp{NormState(w)}, x);
}
inline std::array<Var, 2> add_norm(const Var& x, const Var& branch, const NormWeights& w) {
  return apply(*x.context, AddNormOp{NormState(w)}, x, branch);
}

}  // namespace weft
