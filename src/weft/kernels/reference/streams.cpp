// Residual streams: weighted sums of them, and what is written to them.
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
void read_streams(Stream&, const ReadStreamsArgs& args) {
  shapes::check_read_streams(args);
  const std::vector<double> x = load(args.x), products = load(args.products);
  const std::vector<double> base = load(args.base), scale = load(args.scale);
  const auto rows = size_t(args.x.rows()), cols = size_t(args.y.cols()), streams = size_t(args.x.cols()) / cols;
  const size_t logits = base.size();
  const double eps = double(args.rule.eps);
  std::vector<double> y(rows * cols, 0.0), gates(rows * streams), rstd(rows);
  for (size_t t = 0; t < rows; ++t) {
    double squares = 0;
    for (size_t i = 0; i < streams * cols; ++i) squares += x[t * streams * cols + i] * x[t * streams * cols + i];
    rstd[t] = 1 / std::sqrt(squares / double(streams * cols) + double(args.rule.norm_eps));
    for (size_t i = 0; i < logits; ++i) {
      const size_t n = i % streams;
      const double s =
          activate(Activation::sigmoid, products[t * logits + i] * rstd[t] * scale[i / streams] + base[i]);
      if (i >= streams)
        gates[t * streams + n] = double(args.rule.magnitude) * s + eps;
      else
        for (size_t c = 0; c < cols; ++c) y[t * cols + c] += (s + eps) * x[(t * streams + n) * cols + c];
    }
  }
  store(args.y, y);
  store(args.rstd, rstd);
  if (args.gates) store(args.gates, gates);
}

void read_streams_backward(Stream&, const ReadStreamsBackwardArgs& args) {
  shapes::check_read_streams_backward(args);
  const std::vector<double> x = load(args.x), products = load(args.products), rstd = load(args.rstd);
  const std::vector<double> base = load(args.base), scale = load(args.scale), dy = load(args.dy);
  const auto rows = size_t(args.x.rows()), cols = size_t(args.dy.cols()), streams = size_t(args.x.cols()) / cols;
  const size_t logits = base.size();
  const std::vector<double> dgates = load_or(args.dgates, int64_t(rows * streams), 0.0);
  std::vector<double> dx = load_or(args.dsum, args.x.numel(), 0.0);
  std::vector<double> dproducts(rows * logits), dlogits(rows * logits), dscales(rows * scale.size(), 0.0);
  for (size_t t = 0; t < rows; ++t) {
    double drstd = 0;
    for (size_t i = 0; i < logits; ++i) {
      const size_t n = i % streams, at = t * logits + i;
      const double p = products[at] * rstd[t], s = activate(Activation::sigmoid, p * scale[i / streams] + base[i]);
      double dweight = double(args.rule.magnitude) * dgates[t * streams + n];
      if (i < streams) {
        dweight = 0;
        for (size_t c = 0; c < cols; ++c) {
          const size_t of_x = (t * streams + n) * cols + c;
          dweight += x[of_x] * dy[t * cols + c];
          dx[of_x] += (s + double(args.rule.eps)) * dy[t * cols + c];
        }
      }
      dlogits[at] = dweight * s * (1 - s);
      dscales[t * scale.size() + i / streams] += dlogits[at] * p;
      const double dp = dlogits[at] * scale[i / streams];
      dproducts[at] = dp * rstd[t];
      drstd += dp * products[at];
    }
    const double along = -drstd * rstd[t] * rstd[t] * rstd[t] / double(streams * cols);
    for (size_t i = t * streams * cols; i < (t + 1) * streams * cols; ++i) dx[i] += along * x[i];
  }
  store(args.dx, dx);
  store(args.dproducts, dproducts);
  store(args.dlogits, dlogits);
  store(args.dscales, dscales);
}

void write_streams(Stream&, const WriteStreamsArgs& args) {
  shapes::check_write_streams(args);
  const auto rows = size_t(args.y.rows()), cols = size_t(args.branch.cols()), streams = size_t(args.y.cols()) / cols;
  const std::vector<double> branch = load(args.branch), gates = load_or(args.gates, int64_t(rows * streams), 1.0);
  std::vector<double> y = load_or(args.x, args.y.numel(), 0.0);
  for (size_t i = 0; i < y.size(); ++i) y[i] += gates[i / cols] * branch[i / (streams * cols) * cols + i % cols];
  store(args.y, y);
}

void write_streams_backward(Stream&, const WriteStreamsBackwardArgs& args) {
  shapes::check_write_streams_backward(args);
  const auto rows = size_t(args.dy.rows()), cols = size_t(args.dbranch.cols()),
             streams = size_t(args.dy.cols()) / cols;
  const std::vector<double> dy = load(args.dy), gates = load_or(args.gates, int64_t(rows * streams), 1.0);
  const std::vector<double> branch = load_or(args.branch, args.dbranch.numel(), 0.0);
  std::vector<double> dbranch(rows * cols, 0.0), dgates(rows * streams, 0.0);
  for (size_t i = 0; i < dy.size(); ++i) {
    const size_t of_branch = i / (streams * cols) * cols + i % cols;
    dbranch[of_branch] += gates[i / cols] * dy[i];
    dgates[i / cols] += branch[of_branch] * dy[i];
  }
  store(args.dbranch, dbranch);
  if (args.gates) store(args.dgates, dgates);
}

}  // namespace weft::reference
