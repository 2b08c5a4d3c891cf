// Codes of values in units of a block's scale.
#pragma once
#include <algorithm>
#include <cmath>

namespace weft::ggml {

// Of a scale that a half rounds to zero, zero: its reciprocal might not be finite.
inline float inverse(float scale) { return std::abs(scale) < 1e-30f ? 0 : 1 / scale; }

// The nearest of 0..levels, whatever the value: far outside of an int's range, or not a number, which gets 0.
inline int code_of(float value, int levels) {
  return int(std::min(float(levels) + 0.5f, std::max(0.0f, value + 0.5f)));
}

}  // namespace weft::ggml
