// Activation functions, their derivatives, and their gated forms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

constexpr double kSqrt2OverPi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
constexpr double kGeluCubic = 0.044715, kQuick = 1.702;  // Hendrycks and Gimpel, 2016

// Of the gate, and of what it multiplies.
double limit_of(Activation f) {
  if (f == Activation::swiglu_oai) return double(kOaiLimit);
  return f == Activation::swiglu_clipped ? double(kClippedLimit) : std::numeric_limits<double>::infinity();
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

}  // namespace

double activate(Activation f, double x) {
  switch (f) {
    case Activation::gelu: return x * normal_cdf(x);
    case Activation::gelu_tanh: return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + kGeluCubic * x * x * x)));
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::relu_squared: return x > 0 ? x * x : 0;
    case Activation::silu: return x * sigmoid(x);
    case Activation::gelu_quick: return x * sigmoid(kQuick * x);
    case Activation::swiglu_oai: return activate(Activation::gelu_quick, std::min(x, limit_of(f)));
    case Activation::swiglu_clipped: return activate(Activation::silu, std::min(x, limit_of(f)));
    case Activation::sigmoid: return sigmoid(x);
    case Activation::tanh: return std::tanh(x);
    case Activation::identity: return x;
  }
  throw Error("activation number {} is unknown", int(f));
}

double activation_slope(Activation f, double x) {
  switch (f) {
    case Activation::gelu: {
      const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      return normal_cdf(x) + x * density;
    }
    case Activation::gelu_tanh: {
      const double t = std::tanh(kSqrt2OverPi * (x + kGeluCubic * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kGeluCubic * x * x);
    }
    case Activation::relu: return x > 0 ? 1 : 0;
    case Activation::relu_squared: return x > 0 ? 2 * x : 0;
    case Activation::silu: {
      const double s = sigmoid(x);
      return s * (1 + x * (1 - s));
    }
    case Activation::gelu_quick: {
      const double s = sigmoid(kQuick * x);
      return s * (1 + kQuick * x * (1 - s));
    }
    case Activation::swiglu_oai: return x > limit_of(f) ? 0 : activation_slope(Activation::gelu_quick, x);
    case Activation::swiglu_clipped: return x > limit_of(f) ? 0 : activation_slope(Activation::silu, x);
    case Activation::sigmoid: return sigmoid(x) * sigmoid(-x);
    case Activation::tanh: return 4 * sigmoid(2 * x) * sigmoid(-2 * x);
    case Activation::identity: return 1;
  }
  throw Error("activation number {} is unknown", int(f));
}

double gating_up(Activation f, double up) {
  const double held = std::clamp(up, -limit_of(f), limit_of(f));
  return f == Activation::swiglu_oai ? 1 + held : held;
}
double gating_slope(Activation f, double up) { return std::abs(up) > limit_of(f) ? 0 : 1; }

void activation(Stream&, const Tensor& y, const Tensor& x, Activation f) {
  shapes::check_alike("activation", {{"x", x}, {"y", y}});
  std::vector<double> values = load(x);
  for (double& value : values) value = activate(f, value);
  store(y, values);
}

void activation_backward(Stream&, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation f) {
  shapes::check_alike("activation_backward", {{"x", x}, {"dy", dy}, {"dx", dx}});
  const std::vector<double> at = load(x);
  std::vector<double> gradient = load(dy);
  for (size_t i = 0; i < at.size(); ++i) gradient[i] *= activation_slope(f, at[i]);
  store(dx, gradient);
}

void gated_activation(Stream&, const Tensor& y, const Tensor& gate, const Tensor& up, Activation f) {
  shapes::check_alike("gated_activation", {{"gate", gate}, {"up", up}, {"y", y}});
  const std::vector<double> gates = load(gate);
  std::vector<double> values = load(up);
  for (size_t i = 0; i < values.size(); ++i) values[i] = gating_up(f, values[i]) * activate(f, gates[i]);
  store(y, values);
}

void gated_activation_backward(Stream&, const Tensor& dgate, const Tensor& dup, const Tensor& dy, const Tensor& gate,
                               const Tensor& up, Activation f) {
  shapes::check_alike("gated_activation_backward",
                      {{"gate", gate}, {"up", up}, {"dy", dy}, {"dgate", dgate}, {"dup", dup}});
  const std::vector<double> gates = load(gate), ups = load(up), gradient = load(dy);
  std::vector<double> dgates(gates.size()), dups(gates.size());
  for (size_t i = 0; i < gates.size(); ++i) {
    dgates[i] = gradient[i] * gating_up(f, ups[i]) * activation_slope(f, gates[i]);
    dups[i] = gradient[i] * activate(f, gates[i]) * gating_slope(f, ups[i]);
  }
  store(dgate, dgates);
  store(dup, dups);
}

void softcap(Stream&, const Tensor& y, const Tensor& x, float cap) {
  shapes::check_alike("softcap", {{"x", x}, {"y", y}});
  std::vector<double> values = load(x);
  for (double& value : values) value = double(cap) * std::tanh(value / double(cap));
  store(y, values);
}

void softcap_backward(Stream&, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  shapes::check_alike("softcap_backward", {{"y", y}, {"dy", dy}, {"dx", dx}});
  const std::vector<double> at = load(y);
  std::vector<double> gradient = load(dy);
  for (size_t i = 0; i < at.size(); ++i) gradient[i] *= 1 - at[i] / double(cap) * (at[i] / double(cap));
  store(dx, gradient);
}

}  // namespace weft::reference
