// Float4: E2M1, the 4-bit float of weights, and E8M0, the powers of two that scale them. Source: Open Compute
// Project, "OCP Microscaling Formats (MX) Specification", 2023.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace weft {

// Twice the numbers of E2M1, by their codes: one sign, two exponent and one mantissa bit.
inline constexpr std::array<int8_t, 16> kTwiceE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr float float_of_e2m1(unsigned code) {
  if (code == 8) return -0.0f;
  return float(kTwiceE2M1[code]) / 2;
}

// 255 is no number.
inline float float_of_e8m0(unsigned code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, int(code) - 127);
}

}  // namespace weft
