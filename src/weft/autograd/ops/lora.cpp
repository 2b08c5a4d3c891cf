// Lora: the narrow matrix products beside a linear layer's.
#include "weft/autograd/ops/lora.h"

namespace weft {
namespace {

Tensor as_matrix(const Tensor& x) { return x.reshape({x.rows(), x.cols()}); }

// x[T, I] wᵀ, w: [O, I]
Tensor times_transposed(Context& context, const Tensor& x, Param& w) {
  Tensor y = context.empty(x.dtype(), {x.rows(), w.shape[0]});
  context.kernels.matmul(
      context.stream,
      {.y = y, .a = as_matrix(x), .b = w.value, .transpose_b = true, .packed_b = w.packed(context, true)});
  return y;
}

// dy[T, O] w
Tensor times(Context& context, const Tensor& dy, Param& w) {
  Tensor dx = context.empty(dy.dtype(), {dy.rows(), w.shape[1]});
  context.kernels.matmul(context.stream,
                         {.y = dx, .a = as_matrix(dy), .b = w.value, .packed_b = w.packed(context, false)});
  return dx;
}

// w.grad += dyᵀ x
void add_gradient(Context& context, Param& w, const Tensor& dy, const Tensor& x) {
  if (!w.trainable) return;
  context.kernels.matmul(
      context.stream,
      {.y = w.grad, .a = as_matrix(dy), .b = as_matrix(x), .transpose_a = true, .accumulate = w.accumulate_next()});
}

}  // namespace

Tensor LoraDropout::operator()(Context& context, const Tensor& x) const {
  if (key.p <= 0) return x;
  const Tensor all = as_matrix(x);
  Tensor y = context.empty_like(x);
  const Tensor dropped = as_matrix(y);
  const bool has_all_columns = all.cols() == columns;
  for (const TokenSpan& s : spans) {
    const int64_t step = has_all_columns ? s.count : 1;  // rows whose elements are neighbours in the whole
    for (int64_t row = 0; row < s.count; row += step) {
      DropoutKey part = key;
      part.first = uint64_t((s.first_token + row) * columns + first_column);
      context.kernels.dropout(context.stream, dropped.slice_rows(s.begin + row, step),
                              all.slice_rows(s.begin + row, step), part);
    }
  }
  return y;
}

Tensor LoraOp::forward(Context& context, const Tensor& y, const Tensor& in) {
  x = in;
  h = times_transposed(context, dropout(context, x), a);
  context.kernels.scale(context.stream, h, h, scale);
  Tensor sum = y;
  if (!y.is_unique()) {
    sum = context.empty_like(y);
    context.kernels.convert(context.stream, sum, y);
  }
  context.kernels.matmul(context.stream, {.y = as_matrix(sum),
                                          .a = h,
                                          .b = b.value,
                                          .transpose_b = true,
                                          .accumulate = true,
                                          .packed_b = b.packed(context, true)});
  return sum;
}

std::array<Tensor, 2> LoraOp::backward(Context& context, const Tensor& dy) {
  dh = times(context, dy, b);
  context.kernels.scale(context.stream, dh, dh, scale);
  const Tensor dropped = times(context, dh, a);
  return {dy, dropout(context, dropped).reshape(x.shape())};
}

void LoraOp::backward_weight(Context& context, const Tensor& dy) {
  add_gradient(context, b, dy, h);
  add_gradient(context, a, dh, dropout(context, x));
}

}  // namespace weft
