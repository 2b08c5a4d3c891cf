// Dora: the products of Lora, and the lengths of rows, some rows at a time.
#include "weft/parallel/dora.h"

#include <algorithm>
#include <cmath>

#include "weft/autograd/ops/narrow_products.h"
#include "weft/autograd/ops/own.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

Tensor row_of(const Tensor& x) { return x.reshape({1, x.numel()}); }

// A few rows of a weight, as f32 or wider.
void copy_rows(Context& context, const Param& weight, int64_t first, const Tensor& rows) {
  if (!weight.is_nf4())
    return context.kernels.convert(context.stream, rows, weight.value.slice_rows(first, rows.dim(0)));
  if (rows.device() == Device::meta) return;
  fill_on_host(context.stream, rows, [&](const Tensor& host) {
    nf4::Matrix all = weight.nf4();
    all.blocks = on_host(context.stream, all.blocks), all.scales = on_host(context.stream, all.scales);
    all.decode(first, rows.dim(0), 0, rows.dim(1), host.data<float>());
  });
}

// 1 / sqrt(x), and 0 of a row of zeros.
template <class T>
void invert_roots(const Tensor& x) {
  for (T& value : std::span(x.data<T>(), size_t(x.numel())))
    value = value > 0 ? T(1 / std::sqrt(double(value))) : T(0);
}

}  // namespace

void DoraOp::find_norms(Context& context) {
  const Kernels& k = context.kernels;
  const DType wide = Context::wide(b.value.dtype());
  const int64_t outputs = weight.shape[0], columns = weight.shape[1];
  constexpr int64_t kValues = int64_t(1) << 20;  // of the adapted weight at a time
  const int64_t at_once =
      std::clamp<int64_t>(kValues / std::max<int64_t>(columns, 1), 1, std::max<int64_t>(outputs, 1));
  inverse_norm = context.empty(wide, {outputs});
  const Tensor scaled_b = context.empty_like(b.value), buffer = context.empty(wide, {at_once, columns});
  k.scale(context.stream, scaled_b, b.value, scale);
  for (int64_t first = 0; first < outputs; first += at_once) {
    const int64_t count = std::min(at_once, outputs - first);
    const Tensor rows = buffer.slice_rows(0, count);
    copy_rows(context, weight, first, rows);
    k.matmul(context.stream, {.y = rows, .a = scaled_b.slice_rows(first, count), .b = a.value, .accumulate = true});
    k.dot_rows(context.stream, inverse_norm.slice_flat(first, {count}), rows, rows);
  }
  if (inputs) inputs->all_reduce(inverse_norm);
  if (inverse_norm.device() == Device::meta) return;
  change_on_host(context.stream, inverse_norm, [&](const Tensor& host) {
    wide == DType::f64 ? invert_roots<double>(host) : invert_roots<float>(host);
  });
}

Tensor DoraOp::forward(Context& context, const Tensor& y, const Tensor& in) {
  const Kernels& k = context.kernels;
  x = in;
  h = times_transposed(context, dropout(context, x), a);
  k.scale(context.stream, h, h, scale);
  sum = plus_times_transposed(context, y, h, b);
  find_norms(context);
  factor = context.empty_like(inverse_norm);
  k.convert(context.stream, factor, magnitude.value);
  k.scale_columns(context.stream, row_of(factor), row_of(factor), inverse_norm);
  Tensor out = context.empty_like(sum);
  k.scale_columns(context.stream, out, sum, factor);
  return out;
}

std::array<Tensor, 2> DoraOp::backward(Context& context, const Tensor& dy) {
  const Tensor scaled = context.empty_like(dy);
  context.kernels.scale_columns(context.stream, scaled, dy, factor);
  dsum = in_dtype(context, scaled, x.dtype());
  dh = times(context, dsum, b);
  context.kernels.scale(context.stream, dh, dh, scale);
  const Tensor dropped = times(context, dh, a);
  return {scaled, dropout(context, dropped).reshape(x.shape())};
}

void DoraOp::backward_weight(Context& context, const Tensor& dy) {
  const Kernels& k = context.kernels;
  add_gradient(context, b, dsum, h);
  add_gradient(context, a, dh, dropout(context, x));
  if (!magnitude.trainable) return;
  const Tensor dots = context.empty_like(inverse_norm);
  k.dot_columns(context.stream, dots, dy, sum, false);
  k.scale_columns(context.stream, row_of(dots), row_of(dots), inverse_norm);
  if (magnitude.accumulate_next())
    k.add(context.stream, magnitude.grad, magnitude.grad, dots);
  else
    k.convert(context.stream, magnitude.grad, dots);
}

Tensor FrozenBiasOp::forward(Context& context, const Tensor& y) {
  Tensor sum = own(context, y);
  const Tensor ones = context.empty(y.dtype(), {y.rows(), 1});
  context.kernels.fill(context.stream, ones, 1);
  context.kernels.matmul(context.stream,
                         {.y = as_matrix(sum), .a = ones, .b = row_of(bias.value), .accumulate = true});
  return sum;
}

}  // namespace weft
