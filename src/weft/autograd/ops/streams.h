// Streams: what a layer's parts read of several residual streams, and what they write to them.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// {x, y, gates} of x [T, N H] and its products [T, 2 N] f32, or of [T, N], without gates; see ReadStreamsArgs. The
// gradients of x and y meet inside.
struct ReadStreamsOp {
  static constexpr std::string_view kName = "read_streams";
  Param &base, &scale;
  int64_t streams;
  StreamRule rule;
  Tensor x = {}, products = {}, rstd = {};

  std::array<Tensor, 3> forward(Context& context, const Tensor& in, const Tensor& of_in) {
    const DType wide = Context::wide(in.dtype());
    x = in, products = of_in, rstd = context.empty(wide, {x.rows()});
    Tensor y = context.empty(x.dtype(), {x.rows(), x.cols() / streams});
    Tensor gates = products.cols() > streams ? context.empty(wide, {x.rows(), streams}) : Tensor();
    context.kernels.read_streams(context.stream, {.y = y,
                                                  .gates = gates,
                                                  .rstd = rstd,
                                                  .x = x,
                                                  .products = products,
                                                  .base = base.value,
                                                  .scale = scale.value,
                                                  .rule = rule});
    return {x, std::move(y), std::move(gates)};
  }
  std::array<Tensor, 2> backward(Context& context, const std::array<Tensor, 3>& dy) {
    if (!dy[1]) return {dy[0], Tensor()};
    const Tensor dx = context.empty_like(x), dproducts = context.empty_like(products);
    const Tensor dlogits = context.empty_like(products);
    const Tensor dscales = context.empty(rstd.dtype(), {x.rows(), products.cols() / streams});
    context.kernels.read_streams_backward(context.stream, {.dx = dx,
                                                           .dproducts = dproducts,
                                                           .dlogits = dlogits,
                                                           .dscales = dscales,
                                                           .dy = dy[1],
                                                           .dsum = dy[0],
                                                           .dgates = dy[2],
                                                           .x = x,
                                                           .products = products,
                                                           .rstd = rstd,
                                                           .base = base.value,
                                                           .scale = scale.value,
                                                           .rule = rule});
    if (base.trainable) context.kernels.sum_rows(context.stream, base.grad, dlogits, base.accumulate_next());
    if (scale.trainable) context.kernels.sum_rows(context.stream, scale.grad, dscales, scale.accumulate_next());
    return {dx, dproducts};
  }
};

// x [T, N H] with gates [T, N] times branch [T, H] added to its streams.
struct WriteStreamsOp {
  static constexpr std::string_view kName = "write_streams";
  Tensor branch = {}, gates = {};

  Tensor forward(Context& context, const Tensor& x, const Tensor& in, const Tensor& by) {
    branch = in, gates = by;
    Tensor y = context.empty_like(x);
    context.kernels.write_streams(context.stream, {.y = y, .x = x, .branch = branch, .gates = gates});
    return y;
  }
  std::array<Tensor, 3> backward(Context& context, const Tensor& dy) {
    Tensor dbranch = context.empty_like(branch), dgates = context.empty_like(gates);
    context.kernels.write_streams_backward(
        context.stream, {.dbranch = dbranch, .dgates = dgates, .dy = dy, .branch = branch, .gates = gates});
    return {dy, std::move(dbranch), std::move(dgates)};
  }
};

// Streams that all begin as x [T, H].
struct BeginStreamsOp {
  static constexpr std::string_view kName = "begin_streams";
  int64_t streams;

  Tensor forward(Context& context, const Tensor& x) const {
    Tensor y = context.empty(x.dtype(), {x.rows(), streams * x.cols()});
    context.kernels.write_streams(context.stream, {.y = y, .x = {}, .branch = x, .gates = {}});
    return y;
  }
  Tensor backward(Context& context, const Tensor& dy) const {
    Tensor dx = context.empty(dy.dtype(), {dy.rows(), dy.cols() / streams});
    context.kernels.write_streams_backward(context.stream,
                                           {.dbranch = dx, .dgates = {}, .dy = dy, .branch = {}, .gates = {}});
    return dx;
  }
};

}  // namespace weft
