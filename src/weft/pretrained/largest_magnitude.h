// largest_magnitude: what weights that become codes are scaled by.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "weft/base/error.h"

namespace weft {

// Of no values 0. Throws Error naming the tensor that they are of where one is no finite number.
inline float largest_magnitude(std::span<const float> values, std::string_view tensor) {
  float largest = 0;
  for (const float x : values) {
    if (!std::isfinite(x)) throw Error("{} has an element that is no finite number", tensor);
    largest = std::max(largest, std::abs(x));
  }
  return largest;
}

}  // namespace weft
