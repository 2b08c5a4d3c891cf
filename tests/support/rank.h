// TestRank: a whole rank for tests: team, allocator, stream and context, with a kernel table of choice.
#pragma once
#include "weft/autograd/context.h"
#include "weft/base/philox.h"

namespace weft {

struct TestRank {
  explicit TestRank(const Kernels& kernels, int threads = 1, Device device = Device::cpu)
      : team(threads), allocator(device), stream(team, allocator), context{kernels, stream} {}

  // A tensor of normal deviates, a function of `name`.
  Tensor normal(DType dtype, Shape shape, std::string_view name, double scale = 1) {
    Tensor t = context.empty(dtype, shape);
    for (int64_t i = 0; i < t.numel(); ++i) set(t, i, scale * double(philox_normal(7, name_hash(name), uint64_t(i))));
    return t;
  }
  static void set(const Tensor& t, int64_t i, double value) {
    switch (t.dtype()) {
      case DType::f64: t.data<double>()[i] = value; break;
      case DType::f32: t.data<float>()[i] = float(value); break;
      case DType::bf16: t.data<BFloat16>()[i] = BFloat16(float(value)); break;
      default: check(false, "no test values of {}", name_of(t.dtype()));
    }
  }
  static double get(const Tensor& t, int64_t i) {
    switch (t.dtype()) {
      case DType::f64: return t.data<double>()[i];
      case DType::f32: return double(t.data<float>()[i]);
      case DType::bf16: return double(float(t.data<BFloat16>()[i]));
      default: return 0;
    }
  }

  ThreadTeam team;
  Allocator allocator;
  Stream stream;
  Context context;
};

// Largest difference divided by the largest magnitude of `want`.
inline double relative_error(const Tensor& got, const Tensor& want) {
  double worst = 0, largest = 1e-30;
  for (int64_t i = 0; i < want.numel(); ++i) {
    worst = std::max(worst, std::abs(TestRank::get(got, i) - TestRank::get(want, i)));
    largest = std::max(largest, std::abs(TestRank::get(want, i)));
  }
  return worst / largest;
}

}  // namespace weft
