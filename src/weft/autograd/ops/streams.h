// Streams: what a layer's parts read of several residual streams, and what they write to them.
#pragma once
#include "weft/autograd/param.h"
#include "weft/autograd/tape.h"

namespace weft {

// {x, y, gates, mix} of x [T, N H] and its products [T, L] f32, gates and mix where these are of them; see
// ReadStreamsArgs. The gradients of x and y meet inside.
struct ReadStreamsOp {
  static constexpr std::string_view kName = "read_streams";
  Param &base, &scale;
  int64_t streams;
  StreamRule rule;
  Tensor x = {}, products = {}, rstd = {};

  std::array<Tensor, 4> forward(Context& context, const Tensor& in, const Tensor& of_in) {
    const DType wide = Context::wide(in.dtype());
    x = in, products = of_in, rstd = context.empty(wide, {x.rows()});
    Tensor y = context.empty(x.dtype(), {x.rows(), x.cols() / streams});
    Tensor gates = products.cols() > streams ? context.empty(wide, {x.rows(), streams}) : Tensor();
    Tensor mix = products.cols() > 2 * streams ? context.empty(wide, {x.rows(), streams * streams}) : Tensor();
    context.kernels.read_streams(context.stream, {.y = y,
                                                  .gates = gates,
                                                  .mix = mix,
                                                  .rstd = rstd,
                                                  .x = x,
                                                  .products = products,
                                                  .base = base.value,
                                                  .scale = scale.value,
                                                  .rule = rule});
    return {x, std::move(y), std::move(gates), std::move(mix)};
  }
  std::array<Tensor, 2> backward(Context& context, const std::array<Tensor, 4>& dy) {
    if (!dy[1]) return {dy[0], Tensor()};
    const Tensor dx = context.empty_like(x), dproducts = context.empty_like(products);
    const Tensor dlogits = context.empty_like(products);
    const Tensor dscales = context.empty(rstd.dtype(), {x.rows(), scale.value.numel()});
    context.kernels.read_streams_backward(context.stream, {.dx = dx,
                                                           .dproducts = dproducts,
                                                           .dlogits = dlogits,
                                                           .dscales = dscales,
                                                           .dy = dy[1],
                                                           .dsum = dy[0],
                                                           .dgates = dy[2],
                                                           .dmix = dy[3],
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

// x [T, N H], mixed by mix [T, N N] or as it is where that is empty, with gates [T, N] times branch [T, H] added to
// its streams.
struct WriteStreamsOp {
  static constexpr std::string_view kName = "write_streams";
  Tensor x = {}, branch = {}, gates = {}, mix = {};

  Tensor forward(Context& context, const Tensor& into, const Tensor& in, const Tensor& by, const Tensor& mixed_by) {
    branch = in, gates = by, mix = mixed_by;
    if (mix) x = into;
    Tensor y = context.empty_like(into);
    context.kernels.write_streams(context.stream, {.y = y, .x = into, .branch = branch, .gates = gates, .mix = mix});
    return y;
  }
  std::array<Tensor, 4> backward(Context& context, const Tensor& dy) {
    Tensor dbranch = context.empty_like(branch), dgates = context.empty_like(gates);
    Tensor dx = mix ? context.empty_like(dy) : dy, dmix = mix ? context.empty_like(mix) : Tensor();
    context.kernels.write_streams_backward(context.stream, {.dx = mix ? dx : Tensor(),
                                                            .dbranch = dbranch,
                                                            .dgates = dgates,
                                                            .dmix = dmix,
                                                            .dy = dy,
                                                            .branch = branch,
                                                            .gates = gates,
                                                            .x = x,
                                                            .mix = mix});
    return {std::move(dx), std::move(dbranch), std::move(dgates), std::move(dmix)};
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
