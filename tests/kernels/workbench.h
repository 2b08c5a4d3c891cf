// Workbench: a stream with its team and memory, random tensors, and the comparison of gradients with differences.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/base/philox.h"
#include "weft/kernels/kernels.h"

namespace weft {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Workbench {
  explicit Workbench(int num_threads = 1, Device device = Device::cpu)
      : team(num_threads), allocator(device), stream(team, allocator) {}

  Tensor empty(DType dtype, Shape shape) { return allocator.empty(dtype, shape); }

  // The same bytes where the host can read them, and where the bench's kernels can.
  Tensor on_host(const Tensor& x) {
    if (x.device() == Device::cpu) return x;
    const Tensor result = host.empty(x.dtype(), x.shape());
    stream.copy(result, x);
    return result;
  }
  Tensor on_device(const Tensor& x) {
    if (x.device() == allocator.device()) return x;
    const Tensor result = empty(x.dtype(), x.shape());
    stream.copy(result, x);
    return result;
  }

  // Normal deviates, the same for the same name. On the host.
  Tensor random(DType dtype, Shape shape, std::string_view name) {
    // Cases ask for the same ones in each dtype and for each number of threads: they are made once a thread.
    thread_local std::map<std::string, std::vector<double>> made;
    std::vector<double>& values = made[std::string(name)];
    const uint64_t key = name_hash(name);
    while (values.size() < size_t(shape.numel())) values.push_back(double(philox_normal(7, key, values.size())));
    return from(dtype, shape, values);
  }

  Tensor of(DType dtype, Shape shape, const std::vector<double>& values) { return from(dtype, shape, values); }
  Tensor vector(const std::vector<double>& values) { return of(DType::f64, {int64_t(values.size())}, values); }

  Tensor copy(const Tensor& x) {
    const Tensor result = empty(x.dtype(), x.shape());
    std::memcpy(result.raw(), x.raw(), x.bytes());
    return result;
  }

  std::vector<double> values(const Tensor& x) {
    const Tensor f64 = host.empty(DType::f64, x.shape());
    reference_kernels().convert(stream, f64, on_host(x));
    return {f64.data<double>(), f64.data<double>() + f64.numel()};
  }

  ThreadTeam team;
  Allocator host, allocator;
  Stream stream;

 private:
  // Of the first values.
  Tensor from(DType dtype, Shape shape, std::span<const double> values) {
    const Tensor f64 = host.empty(DType::f64, shape), result = host.empty(dtype, shape);
    std::ranges::copy(values.first(size_t(shape.numel())), f64.data<double>());
    reference_kernels().convert(stream, result, f64);
    return result;
  }
};

inline std::string name_of(Activation f) {
  switch (f) {
    case Activation::gelu: return "gelu";
    case Activation::gelu_tanh: return "gelu_tanh";
    case Activation::relu: return "relu";
    case Activation::relu_squared: return "relu_squared";
    case Activation::silu: return "silu";
    case Activation::gelu_quick: return "gelu_quick";
    case Activation::swiglu_oai: return "swiglu_oai";
    case Activation::swiglu_clipped: return "swiglu_clipped";
    case Activation::sigmoid: return "sigmoid";
    case Activation::tanh: return "tanh";
    case Activation::identity: return "identity";
  }
  return "unknown";
}

inline double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
  return sum;
}

// dx must be the gradient of loss() with respect to the f64 tensor x, within 1e-7 of its largest element.
inline void expect_gradient(std::string_view name, const Tensor& x, const Tensor& dx, FunctionRef<double()> loss) {
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (int64_t i = 0; i < x.numel(); ++i) largest = std::max(largest, std::abs(dx.data<double>()[i]));
  ASSERT_GT(largest, 0) << name << ": a gradient of zeros tests nothing";
  for (int64_t i = 0; i < x.numel(); ++i) {
    double& element = x.data<double>()[i];
    const double at = element;
    element = at + kStep;
    const double above = loss();
    element = at - kStep;
    const double below = loss();
    element = at;
    ASSERT_NEAR(dx.data<double>()[i], (above - below) / (2 * kStep), 1e-7 * largest) << name << ", element " << i;
  }
}

inline void expect_near(std::string_view name, std::span<const double> actual, std::span<const double> expected,
                        double tolerance) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance) << name << ", element " << i;
}

}  // namespace weft
