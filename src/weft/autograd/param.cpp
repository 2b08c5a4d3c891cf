// Param: packing for matrix products, and initial values.
#include "weft/autograd/param.h"

#include <cmath>
#include <numbers>

#include "weft/base/philox.h"
#include "weft/tensor/host_access.h"

namespace weft {

void Param::hold_as_nf4() {
  check(shape.rank() == 2 || shape.rank() == 3, "{} is no matrix and no stack of them, which are held as NF4", name);
  if (shape.rank() == 2) {
    nf4_.emplace(placement.whole, placement.begin[0], shape[0], placement.begin[1], shape[1]);
    return;
  }
  nf4_.emplace(nf4::Layout::of_stack(placement.whole, shape, placement.begin));
  for (int64_t i = 0; i < shape[0]; ++i) nf4_matrices_.push_back(nf4_->part(i * shape[1], shape[1]));
}

void Param::hold_in_blocks(BlockMatrix blocks, bool keeps_rows) {
  check(readers != Readers::any, "{} is read by more than products and lookups, and cannot be held in blocks", name);
  check(shape[-1] == blocks.cols && shape.numel() == blocks.rows * blocks.cols,
        "{} is {}, but its blocks are [{}, {}]", name, shape, blocks.rows, blocks.cols);
  const Tensor rows = keeps_rows ? value : Tensor{};
  drop_value();
  value = rows;
  keeps_rows_ = keeps_rows;
  blocks_ = std::move(blocks);
  trainable = false;
}

void Param::hold_packed(Context& context) {
  trainable = false;
  if (readers == Readers::products && packed(context, true)) value = {};
}

size_t Param::product_bytes(Context& context) {
  if (blocks_) return blocks_.blocks.bytes();
  const Tensor& p = packed(context, true);
  return p ? p.bytes() : value.bytes();
}

void Param::pack(Context& context, Packed& p, bool transpose_b) {
  if (nf4_ || blocks_ || in_float8 || shape.rank() > 2) return;  // of experts few are used: packing them does not pay
  const int64_t k = transpose_b ? shape[1] : shape[0], n = transpose_b ? shape[0] : shape[1];
  const size_t bytes = context.kernels.packed_matmul_b_bytes(value.dtype(), k, n, transpose_b);
  if (bytes == 0) return;
  if (!p.tensor) p.tensor = context.empty(DType::u8, {int64_t(bytes)});
  const ObservedOp observed(context, "pack_weight", OpObserver::Phase::forward);
  context.kernels.pack_matmul_b(context.stream, p.tensor, value, transpose_b);
}

namespace {

// Sigmoids of the first n are one part in n each; of the next, a half; of n by n more, whose rows are normalised by
// their exponentials, those on the diagonal nine parts in ten.
float first_weight_of_streams(uint64_t n, uint64_t index) {
  const float others = std::max(float(n) - 1, 1.0f);
  if (index < n) return -::logf(others);
  return index >= 2 * n && (index - 2 * n) % (n + 1) == 0 ? ::logf(9 * others) : 0;
}

}  // namespace

float Init::value(uint64_t seed, uint64_t name, uint64_t index) const {
  if (is_constant()) return number;
  if (kind == Kind::weights_of_streams) return first_weight_of_streams(uint64_t(number), index);
  const float normal = philox_normal(seed, name, index);
  if (kind == Kind::normal) return number * normal;
  const double uniform = 0.5 * ::erfc(-double(normal) / std::numbers::sqrt2);
  if (kind == Kind::log_rate) return float(::log(1 + 15 * uniform));
  const double step = 0.001 * ::pow(100, uniform);
  return float(step + ::log(-::expm1(-step)));  // ln(e^step - 1)
}

namespace {

template <class T>
void fill_values(Context& context, const Param& param, uint64_t seed, T* out, int64_t first, int64_t count) {
  const uint64_t name = name_hash(param.name);
  context.stream.team().parallel_for(count, 1 << 14, [&](int64_t begin, int64_t end, int) {
    param.placement.each_run(first + begin, end - begin, [&](int64_t local, int64_t global, int64_t n) {
      for (int64_t i = 0; i < n; ++i) out[local - first + i] = T(param.init.value(seed, name, uint64_t(global + i)));
    });
  });
}

}  // namespace

void initialize(Context& context, const Param& param, uint64_t seed, const Tensor& out, int64_t first) {
  check(first >= 0 && first + out.numel() <= param.shape.numel(), "{}: initial values {}+{} of {}", param.name, first,
        out.numel(), param.shape.numel());
  if (param.init.is_constant()) return context.kernels.fill(context.stream, out, param.init.number);
  if (out.device() == Device::meta) return;
  fill_on_host(context.stream, out, [&](const Tensor& host) {
    if (out.dtype() == DType::f64)
      fill_values(context, param, seed, host.data<double>(), first, out.numel());
    else
      fill_values(context, param, seed, host.data<float>(), first, out.numel());
  });
}

}  // namespace weft
