// What tensors of f32 or f64 in host memory hold, as doubles.
#pragma once
#include <algorithm>
#include <span>

#include "weft/tensor/tensor.h"

namespace weft {

// As many elements as there are doubles, from the first on.
inline void read_wide(const Tensor& from, std::span<double> to) {
  if (from.dtype() == DType::f64)
    std::copy_n(from.data<double>(), to.size(), to.begin());
  else
    std::copy_n(from.data<float>(), to.size(), to.begin());
}
inline void write_wide(const Tensor& to, std::span<const double> from) {
  if (to.dtype() == DType::f64)
    std::ranges::copy(from, to.data<double>());
  else
    std::ranges::transform(from, to.data<float>(), [](double x) { return float(x); });
}

}  // namespace weft
