// y = factor x (Scale), y[t, c] = factors[c] x[t, c] (ScaleColumns), y[t, c] = factors[t] x[t, c] (ScaleRows), and
// y = cap tanh(x / cap) (Softcap).
#pragma once
#include "weft/autograd/param.h"
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

// x [T, C], factors [C]; or [1]: of all columns, of a factor that is not trained.
struct ScaleColumnsOp {
  static constexpr std::string_view kName = "scale_columns";
  Param& factors;
  Tensor x = {}, wide = {};

  Tensor forward(Context& context, const Tensor& in) {
    x = in, wide = context.empty(Context::wide(x.dtype()), factors.value.shape());
    context.kernels.convert(context.stream, wide, factors.value);
    if (wide.numel() < x.cols()) spread(context);
    Tensor y = context.empty_like(x);
    context.kernels.scale_columns(context.stream, y, x, wide);
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) {
    if (factors.trainable)
      context.kernels.dot_columns(context.stream, factors.grad, dy, x, factors.accumulate_next());
    Tensor dx = context.empty_like(x);
    context.kernels.scale_columns(context.stream, dx, dy, wide);
    return dx;
  }

 private:
  void spread(Context& context) {
    const Tensor all = context.empty(wide.dtype(), {x.cols(), 1});
    context.kernels.fill(context.stream, all, 1);
    context.kernels.scale_columns(context.stream, all, all, wide);
    wide = all.reshape({x.cols()});
  }
};

// x [T, C], factors [T, 1], f32 or wider.
struct ScaleRowsOp {
  static constexpr std::string_view kName = "scale_rows";
  Tensor x = {}, factors = {};

  Tensor forward(Context& context, const Tensor& in, const Tensor& by) {
    x = in, factors = by;
    Tensor y = context.empty_like(x);
    context.kernels.write_streams(context.stream, {.y = y, .x = {}, .branch = x, .gates = factors});
    return y;
  }
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy) {
    std::array<Tensor, 2> d{context.empty_like(x), context.empty_like(factors)};
    context.kernels.write_streams_backward(
        context.stream, {.dbranch = d[0], .dgates = d[1], .dy = dy, .branch = x, .gates = factors});
    return d;
  }
};

inline Var scaled_rows(const Var& x, const Var& factors) { return apply(*x.context, ScaleRowsOp{}, x, factors); }

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
