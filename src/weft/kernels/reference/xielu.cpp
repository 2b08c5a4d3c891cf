// xIELU, and its gradients.
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

struct Alphas {
  double positive, negative;
  Alphas(const Tensor& p, const Tensor& n) : positive(softplus(load(p)[0])), negative(0.5 + softplus(load(n)[0])) {}
};

}  // namespace

void xielu(Stream&, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu(y, x, positive, negative);
  const Alphas alpha(positive, negative);
  std::vector<double> values = load(x);
  for (double& v : values) v = (v > 0 ? alpha.positive * v * v : alpha.negative * (std::expm1(v) - v)) + 0.5 * v;
  store(y, values);
}

void xielu_backward(Stream&, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative, const Tensor& dy,
                    const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu_backward(dx, dpositive, dnegative, dy, x, positive, negative);
  const Alphas alpha(positive, negative);
  // The slope of softplus.
  const double of_positive = activate(Activation::sigmoid, load(positive)[0]);
  const double of_negative = activate(Activation::sigmoid, load(negative)[0]);
  const std::vector<double> at = load(x);
  std::vector<double> gradient = load(dy), dp(size_t(x.rows()), 0.0), dn(dp);
  for (size_t i = 0; i < at.size(); ++i) {
    const double v = at[i], e = std::expm1(v);
    const size_t row = i / size_t(x.cols());
    if (v > 0)
      dp[row] += gradient[i] * v * v * of_positive;
    else
      dn[row] += gradient[i] * (e - v) * of_negative;
    gradient[i] *= (v > 0 ? 2 * alpha.positive * v : alpha.negative * e) + 0.5;
  }
  store(dx, gradient);
  if (!dpositive) return;
  store(dpositive, dp);
  store(dnegative, dn);
}

}  // namespace weft::reference
