// to_unit_length: vectors that are compared by their angle.
#pragma once
#include <cmath>
#include <span>

namespace weft {

// Divides by the Euclidean norm; zeros stay.
inline void to_unit_length(std::span<float> vector) {
  double squares = 0;
  for (const float x : vector) squares += double(x) * double(x);
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  for (float& x : vector) x = float(x * scale);
}

}  // namespace weft
