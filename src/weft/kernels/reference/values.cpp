// Loading and storing: the elements of float tensors of any dtype, as doubles.
#include <cmath>

#include "weft/kernels/reference/reference.h"

namespace weft::reference {
namespace {

// Rounds to odd, so that rounding the result once more, to 16 bits, equals rounding x to 16 bits directly.
float to_float_for_rounding(double x) {
  const float nearest = float(x);
  if (double(nearest) == x || !std::isfinite(nearest) || (std::bit_cast<uint32_t>(nearest) & 1u)) return nearest;
  return std::nextafter(nearest, double(nearest) < x ? INFINITY : -INFINITY);
}

void check_is_here(const Tensor& t) {
  check(t.device() == Device::cpu, "reference kernels need tensors in the memory of the CPU");
}

template <class T>
std::vector<double> load_as(const Tensor& t) {
  const T* data = t.data<T>();
  std::vector<double> values(size_t(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>)
      values[i] = double(data[i]);
    else
      values[i] = double(float(data[i]));
  }
  return values;
}

template <class T>
void store_as(const Tensor& t, const std::vector<double>& values) {
  T* data = t.data<T>();
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>)
      data[i] = T(values[i]);
    else
      data[i] = T(to_float_for_rounding(values[i]));
  }
}

}  // namespace

std::vector<double> load(const Tensor& t) {
  check_is_here(t);
  switch (t.dtype()) {
    case DType::f64: return load_as<double>(t);
    case DType::f32: return load_as<float>(t);
    case DType::bf16: return load_as<BFloat16>(t);
    case DType::f16: return load_as<Float16>(t);
    default: throw Error("reference kernels compute on floats, not on {}", name_of(t.dtype()));
  }
}

std::vector<double> load_or(const Tensor& t, int64_t count, double value) {
  return t ? load(t) : std::vector<double>(size_t(count), value);
}

void store(const Tensor& t, const std::vector<double>& values) {
  check_is_here(t);
  check(size_t(t.numel()) == values.size(), "{} values for a tensor of {}", values.size(), t.numel());
  switch (t.dtype()) {
    case DType::f64: return store_as<double>(t, values);
    case DType::f32: return store_as<float>(t, values);
    case DType::bf16: return store_as<BFloat16>(t, values);
    case DType::f16: return store_as<Float16>(t, values);
    default: throw Error("reference kernels compute on floats, not on {}", name_of(t.dtype()));
  }
}

}  // namespace weft::reference
