// RMS and layer norms, with the residual addition before them.
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

std::vector<double> load_weight(const Tensor& weight, float offset) {
  std::vector<double> values = load(weight);
  for (double& w : values) w += double(offset);
  return values;
}

}  // namespace

void norm(Stream&, const NormArgs& args) {
  shapes::check_norm(args);
  const auto rows = size_t(args.x.rows()), cols = size_t(args.x.cols());
  const bool is_layer = args.kind == NormKind::layer;
  const std::vector<double> weight = load_weight(args.weight, args.weight_offset);
  const std::vector<double> bias = load_or(args.bias, args.x.cols(), 0.0);
  std::vector<double> x = load(args.x), y(x.size()), mean(rows, 0.0), rstd(rows);
  if (args.residual) {
    const std::vector<double> residual = load(args.residual);
    for (size_t i = 0; i < x.size(); ++i) x[i] += residual[i];
    store(args.sum, x);
  }
  for (size_t r = 0; r < rows; ++r) {
    const double* row = &x[r * cols];
    if (is_layer) {
      for (size_t c = 0; c < cols; ++c) mean[r] += row[c];
      mean[r] /= double(cols);
    }
    double variance = 0;
    for (size_t c = 0; c < cols; ++c) variance += (row[c] - mean[r]) * (row[c] - mean[r]);
    rstd[r] = 1 / std::sqrt(variance / double(cols) + double(args.eps));
    for (size_t c = 0; c < cols; ++c) y[r * cols + c] = (row[c] - mean[r]) * rstd[r] * weight[c] + bias[c];
  }
  store(args.y, y);
  store(args.rstd, rstd);
  if (is_layer) store(args.mean, mean);
}

// With n = (x - mean) rstd and g = dy weight:  dx = rstd (g - mean(g) - n mean(g n)); mean(g) only for layer.
void norm_backward(Stream&, const NormBackwardArgs& args) {
  shapes::check_norm_backward(args);
  const auto rows = size_t(args.x.rows()), cols = size_t(args.x.cols());
  const bool is_layer = args.kind == NormKind::layer;
  const std::vector<double> dy = load(args.dy), x = load(args.x), rstd = load(args.rstd);
  const std::vector<double> weight = load_weight(args.weight, args.weight_offset);
  const std::vector<double> mean = is_layer ? load(args.mean) : std::vector<double>(rows, 0.0);
  std::vector<double> dx = load_or(args.dsum, args.x.numel(), 0.0);
  const auto parameter_gradient = [&](const Tensor& t) {
    return args.accumulate && t ? load(t) : std::vector<double>(cols, 0.0);
  };
  std::vector<double> dweight = parameter_gradient(args.dweight), dbias = parameter_gradient(args.dbias);
  for (size_t r = 0; r < rows; ++r) {
    const auto normal = [&](size_t c) { return (x[r * cols + c] - mean[r]) * rstd[r]; };
    double mean_g = 0, mean_gn = 0;
    for (size_t c = 0; c < cols; ++c) {
      const double g = dy[r * cols + c] * weight[c];
      if (is_layer) mean_g += g / double(cols);
      mean_gn += g * normal(c) / double(cols);
      dweight[c] += dy[r * cols + c] * normal(c);
      dbias[c] += dy[r * cols + c];
    }
    for (size_t c = 0; c < cols; ++c)
      dx[r * cols + c] += rstd[r] * (dy[r * cols + c] * weight[c] - mean_g - normal(c) * mean_gn);
  }
  store(args.dx, dx);
  if (args.dweight) store(args.dweight, dweight);
  if (args.dbias) store(args.dbias, dbias);
}

}  // namespace weft::reference
