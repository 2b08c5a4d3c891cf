// Lora: a narrow product down, and one up.
#include "weft/autograd/ops/lora.h"

#include "weft/autograd/ops/narrow_products.h"

namespace weft {
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
  return plus_times_transposed(context, y, h, b);
}

std::array<Tensor, 2> LoraOp::backward(Context& context, const Tensor& dy) {
  rounded = in_dtype(context, dy, x.dtype());
  dh = times(context, rounded, b);
  context.kernels.scale(context.stream, dh, dh, scale);
  const Tensor dropped = times(context, dh, a);
  return {dy, dropout(context, dropped).reshape(x.shape())};
}

void LoraOp::backward_weight(Context& context, const Tensor&) {
  add_gradient(context, b, rounded, h);
  add_gradient(context, a, dh, dropout(context, x));
}

}  // namespace weft
