// Residual streams: weighted sums of them, and what is written to them.
#include <algorithm>
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"
#include "weft/kernels/stream_mix.h"

namespace weft::reference {
namespace {

// The matrix of a token's streams, and its gradient, as they are after each division.
using Matrix = std::vector<double>;

// Divides by the sums of columns (k even) or rows.
struct Division {
  size_t streams, k;
  double eps;

  size_t line(size_t at) const { return k % 2 == 0 ? at % streams : at / streams; }
  std::vector<double> sums(const Matrix& of) const {
    std::vector<double> sums(streams, 0.0);
    for (size_t i = 0; i < of.size(); ++i) sums[line(i)] += of[i];
    return sums;
  }
  Matrix operator()(Matrix m) const {
    const std::vector<double> by = sums(m);
    for (size_t i = 0; i < m.size(); ++i) m[i] /= by[line(i)] + eps;
    return m;
  }
  // The gradient of m, of that of what it became.
  Matrix backward(const Matrix& m, Matrix gradient) const {
    const std::vector<double> by = sums(m);
    Matrix product = m;
    for (size_t i = 0; i < m.size(); ++i) product[i] *= gradient[i];
    const std::vector<double> along = sums(product);
    for (size_t i = 0; i < m.size(); ++i) {
      const double divisor = by[line(i)] + eps;
      gradient[i] = gradient[i] / divisor - along[line(i)] / (divisor * divisor);
    }
    return gradient;
  }
};

Matrix softmax_of_rows(const double* logits, size_t streams) {
  Matrix m(streams * streams);
  for (size_t row = 0; row < streams; ++row) {
    const double* const of = logits + row * streams;
    const double most = *std::max_element(of, of + streams);
    double sum = 0;
    for (size_t n = 0; n < streams; ++n) sum += m[row * streams + n] = std::exp(of[n] - most);
    for (size_t n = 0; n < streams; ++n) m[row * streams + n] /= sum;
  }
  return m;
}

// All matrices, from the first sum to the last division.
std::vector<Matrix> matrices(const Matrix& softmax, size_t streams, const StreamRule& rule) {
  std::vector<Matrix> all{softmax};
  for (double& x : all[0]) x += double(rule.eps);
  for (size_t k = 0; k < size_t(num_divisions(rule.mix_steps)); ++k)
    all.push_back(Division{streams, k, double(rule.eps)}(all.back()));
  return all;
}

Matrix mix_backward(Matrix gradient, const Matrix& softmax, size_t streams, const StreamRule& rule) {
  const std::vector<Matrix> all = matrices(softmax, streams, rule);
  for (size_t k = all.size() - 1; k-- > 0;)
    gradient = Division{streams, k, double(rule.eps)}.backward(all[k], std::move(gradient));
  for (size_t row = 0; row < streams; ++row) {
    double along = 0;
    for (size_t n = 0; n < streams; ++n) along += gradient[row * streams + n] * softmax[row * streams + n];
    for (size_t n = 0; n < streams; ++n)
      gradient[row * streams + n] = (gradient[row * streams + n] - along) * softmax[row * streams + n];
  }
  return gradient;
}

}  // namespace

void read_streams(Stream&, const ReadStreamsArgs& args) {
  shapes::check_read_streams(args);
  const std::vector<double> x = load(args.x), products = load(args.products);
  const std::vector<double> base = load(args.base), scale = load(args.scale);
  const auto rows = size_t(args.x.rows()), cols = size_t(args.y.cols()), streams = size_t(args.x.cols()) / cols;
  const size_t logits = base.size();
  const double eps = double(args.rule.eps);
  std::vector<double> y(rows * cols, 0.0), gates(rows * streams), mix, rstd(rows);
  for (size_t t = 0; t < rows; ++t) {
    double squares = 0;
    for (size_t i = 0; i < streams * cols; ++i) squares += x[t * streams * cols + i] * x[t * streams * cols + i];
    rstd[t] = 1 / std::sqrt(squares / double(streams * cols) + double(args.rule.norm_eps));
    Matrix logit(logits);
    for (size_t i = 0; i < logits; ++i)
      logit[i] =
          products[t * logits + i] * rstd[t] * scale[size_t(kind_of_product(int64_t(i), int64_t(streams)))] + base[i];
    for (size_t n = 0; n < streams; ++n) {
      const double s = activate(Activation::sigmoid, logit[n]);
      for (size_t c = 0; c < cols; ++c) y[t * cols + c] += (s + eps) * x[(t * streams + n) * cols + c];
      if (args.gates)
        gates[t * streams + n] = double(args.rule.magnitude) * activate(Activation::sigmoid, logit[streams + n]) +
                                 double(args.rule.gate_eps);
    }
    if (!args.mix) continue;
    const Matrix m = matrices(softmax_of_rows(&logit[2 * streams], streams), streams, args.rule).back();
    mix.insert(mix.end(), m.begin(), m.end());
  }
  store(args.y, y);
  store(args.rstd, rstd);
  if (args.gates) store(args.gates, gates);
  if (args.mix) store(args.mix, mix);
}

void read_streams_backward(Stream&, const ReadStreamsBackwardArgs& args) {
  shapes::check_read_streams_backward(args);
  const std::vector<double> x = load(args.x), products = load(args.products), rstd = load(args.rstd);
  const std::vector<double> base = load(args.base), scale = load(args.scale), dy = load(args.dy);
  const auto rows = size_t(args.x.rows()), cols = size_t(args.dy.cols()), streams = size_t(args.x.cols()) / cols;
  const size_t logits = base.size();
  const std::vector<double> dgates = load_or(args.dgates, int64_t(rows * streams), 0.0);
  const std::vector<double> dmix = load_or(args.dmix, int64_t(rows * streams * streams), 0.0);
  std::vector<double> dx = load_or(args.dsum, args.x.numel(), 0.0);
  std::vector<double> dproducts(rows * logits), dlogits(rows * logits), dscales(rows * scale.size(), 0.0);
  for (size_t t = 0; t < rows; ++t) {
    double drstd = 0;
    Matrix logit(logits);
    for (size_t i = 0; i < logits; ++i)
      logit[i] =
          products[t * logits + i] * rstd[t] * scale[size_t(kind_of_product(int64_t(i), int64_t(streams)))] + base[i];
    for (size_t i = 0; i < std::min(logits, 2 * streams); ++i) {
      const size_t n = i % streams;
      const double s = activate(Activation::sigmoid, logit[i]);
      double dweight = double(args.rule.magnitude) * dgates[t * streams + n];
      if (i < streams) {
        dweight = 0;
        for (size_t c = 0; c < cols; ++c) {
          const size_t of_x = (t * streams + n) * cols + c;
          dweight += x[of_x] * dy[t * cols + c];
          dx[of_x] += (s + double(args.rule.eps)) * dy[t * cols + c];
        }
      }
      dlogits[t * logits + i] = dweight * s * (1 - s);
    }
    if (scale.size() == 3) {
      const auto begin = dmix.begin() + int64_t(t * streams * streams);
      const Matrix of_mix = mix_backward({begin, begin + int64_t(streams * streams)},
                                         softmax_of_rows(&logit[2 * streams], streams), streams, args.rule);
      std::ranges::copy(of_mix, dlogits.begin() + int64_t(t * logits + 2 * streams));
    }
    for (size_t i = 0; i < logits; ++i) {
      const size_t at = t * logits + i, kind = size_t(kind_of_product(int64_t(i), int64_t(streams)));
      dscales[t * scale.size() + kind] += dlogits[at] * products[at] * rstd[t];
      const double dp = dlogits[at] * scale[kind];
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
  const std::vector<double> x = load_or(args.x, args.y.numel(), 0.0);
  std::vector<double> y = x;
  if (args.mix) {
    const std::vector<double> mix = load(args.mix);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t t = i / (streams * cols), n = i / cols % streams, c = i % cols;
      y[i] = 0;
      for (size_t m = 0; m < streams; ++m)
        y[i] += mix[(t * streams + m) * streams + n] * x[(t * streams + m) * cols + c];
    }
  }
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
  if (!args.mix) return;
  const std::vector<double> x = load(args.x), mix = load(args.mix);
  std::vector<double> dx(dy.size(), 0.0), dmix(mix.size(), 0.0);
  for (size_t i = 0; i < mix.size(); ++i) {
    const size_t m = i / streams, n = i / (streams * streams) * streams + i % streams;  // among streams of all tokens
    for (size_t c = 0; c < cols; ++c) {
      dx[m * cols + c] += mix[i] * dy[n * cols + c];
      dmix[i] += x[m * cols + c] * dy[n * cols + c];
    }
  }
  store(args.dx, dx);
  store(args.dmix, dmix);
}

}  // namespace weft::reference
