// Matrix products with their epilogues.
#include <span>

#include "weft/kernels/block_decode.h"
#include "weft/kernels/float8_groups.h"
#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"
#include "weft/tensor/float8.h"

namespace weft::reference {
namespace {

std::vector<double> transposed(const std::vector<double>& x, size_t rows, size_t cols) {
  std::vector<double> y(x.size());
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) y[c * rows + r] = x[r * cols + c];
  return y;
}

// Rows of [rows, K] on the grid of float8_groups.h.
void round_to_float8(std::vector<double>& x, size_t k) {
  constexpr auto kGroup = size_t(float8_groups::kGroup);
  for (size_t row = 0; row < x.size(); row += std::max(k, size_t(1)))
    for (size_t begin = 0; begin < k; begin += kGroup) {
      const std::span group(x.data() + row + begin, std::min(kGroup, k - begin));
      double largest = 0;
      bool is_finite = true;
      for (const double v : group) largest = std::max(largest, std::abs(v)), is_finite &= std::isfinite(v);
      int exponent = -117;
      while (is_finite && largest > std::ldexp(double(Float8E4M3::kLargest), exponent)) ++exponent;
      for (double& v : group) {
        const auto code = Float8E4M3::from(float(std::ldexp(v, -exponent)));
        v = is_finite ? std::ldexp(double(float(code)), exponent) : NAN;
        if (std::abs(v) >= 0x1p128) v = std::copysign(INFINITY, v);
      }
    }
}

// y[M, N] += a[M, K] b[K, N]
void add_product(std::vector<double>& y, const std::vector<double>& a, const std::vector<double>& b, size_t m,
                 size_t n, size_t k) {
  for (size_t i = 0; i < m; ++i)
    for (size_t l = 0; l < k; ++l)
      for (size_t j = 0; j < n; ++j) y[i * n + j] += a[i * k + l] * b[l * n + j];
}

std::vector<double> decode(const nf4::Matrix& b) {
  std::vector<float> values(size_t(b.layout->rows() * b.layout->cols()));
  b.decode(0, b.layout->rows(), 0, b.layout->cols(), values.data());
  return {values.begin(), values.end()};
}

std::vector<double> decode(const BlockMatrix& b) {
  std::vector<float> values(size_t(b.rows * b.cols));
  for (int64_t row = 0; row < b.rows; ++row) decode_row(b, row, values.data() + row * b.cols);
  return {values.begin(), values.end()};
}

std::vector<double> load_b(const MatmulArgs& args) {
  if (args.blocks_b) return decode(args.blocks_b);
  return args.nf4_b ? decode(args.nf4_b) : load(args.b);
}

void apply_epilogue(const Epilogue& e, std::vector<double>& y) {
  using Kind = Epilogue::Kind;
  switch (e.kind) {
    case Kind::none: return;
    case Kind::activate: {
      std::vector<double> act(y.size());
      for (size_t i = 0; i < y.size(); ++i) act[i] = activate(e.f, y[i]);
      return store(e.act, act);
    }
    case Kind::gated: {
      const std::vector<double> gate = load(e.gate);
      std::vector<double> act(y.size());
      for (size_t i = 0; i < y.size(); ++i) act[i] = activate(e.f, gate[i]) * gating_up(e.f, y[i]);
      return store(e.act, act);
    }
    case Kind::activate_backward: {
      const std::vector<double> pre = load(e.pre);
      for (size_t i = 0; i < y.size(); ++i) y[i] *= activation_slope(e.f, pre[i]);
      return;
    }
    case Kind::gated_backward: {
      const std::vector<double> gate = load(e.gate), up = load(e.up);
      std::vector<double> dgate(y.size());
      for (size_t i = 0; i < y.size(); ++i) {
        dgate[i] = y[i] * gating_up(e.f, up[i]) * activation_slope(e.f, gate[i]);
        y[i] *= activate(e.f, gate[i]) * gating_slope(e.f, up[i]);
      }
      return store(e.dgate, dgate);
    }
  }
}

}  // namespace

void matmul(Stream&, const MatmulArgs& args) {
  shapes::check_matmul(args);
  const auto m = size_t(args.y.dim(0)), n = size_t(args.y.dim(1)), k = size_t(args.a.dim(args.transpose_a ? 0 : 1));
  std::vector<double> a = load(args.a), b = load_b(args);
  if (args.transpose_a) a = transposed(a, k, m);
  if (args.float8) {
    if (!args.transpose_b) b = transposed(b, k, n);
    round_to_float8(a, k);
    round_to_float8(b, k);
    b = transposed(b, n, k);
  } else if (args.transpose_b) {
    b = transposed(b, n, k);
  }
  std::vector<double> y = args.accumulate ? load(args.y) : std::vector<double>(m * n, 0.0);
  add_product(y, a, b, m, n, k);
  const std::vector<double> bias = load_or(args.epilogue.bias, int64_t(n), 0.0);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) y[i * n + j] += bias[j];
  apply_epilogue(args.epilogue, y);
  store(args.y, y);
}

size_t packed_matmul_b_bytes(DType, int64_t, int64_t, bool) { return 0; }

void pack_matmul_b(Stream&, const Tensor&, const Tensor&, bool) {
  throw Error("reference kernels have no packed layout: packed_matmul_b_bytes is 0, so leave packed_b empty");
}

}  // namespace weft::reference
