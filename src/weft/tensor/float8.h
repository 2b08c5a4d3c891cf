// Float8: E4M3, the 8-bit float of weights. Source: Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace weft {

// One sign, four exponent and three mantissa bits, without infinities; 0x7f and 0xff are no numbers.
struct Float8E4M3 {
  static constexpr float kLargest = 448;
  uint8_t bits = 0;

  static constexpr Float8E4M3 from_bits(uint8_t bits) { return Float8E4M3{bits}; }
  // To nearest, ties to even; what is larger becomes the largest, and what is no number stays none.
  static Float8E4M3 from(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const auto sign = uint8_t(u >> 24 & 0x80);
    const float magnitude = std::abs(x);
    if (!(magnitude <= std::numeric_limits<float>::max())) return {uint8_t(sign | (std::isnan(x) ? 0x7f : 0x7e))};
    if (magnitude >= kLargest) return {uint8_t(sign | 0x7e)};
    if (magnitude < 0x1p-6f) return {uint8_t(sign | uint8_t(std::nearbyint(magnitude * 0x1p9f)))};
    const uint32_t m = u & 0x7fffffff, rounded = (m + 0x7ffff + (m >> 20 & 1)) >> 20;
    return {uint8_t(sign | (rounded - (120 << 3)))};
  }
  bool is_number() const { return (bits & 0x7f) != 0x7f; }
  explicit operator float() const {
    if (!is_number()) return std::numeric_limits<float>::quiet_NaN();
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float magnitude =
        exponent == 0 ? std::ldexp(float(mantissa), -9) : std::ldexp(float(8 + mantissa), exponent - 10);
    return bits & 0x80 ? -magnitude : magnitude;
  }
};

}  // namespace weft
