// Float8 groups: the grid to which products in fp8 round their operands; see MatmulArgs::float8.
//
// 128 neighbours along the summed dim are a group (the last of a line may have fewer). Its scale is the least power
// of two 2^e, e >= -117, with which its largest magnitude is at most 448 scales: nothing saturates. A number becomes
// the nearest E4M3 code, ties to even, times the scale. That has 4 significant bits and is 0 or at least 2^-126, so
// it is exact in bf16; what rounds up to 2^128 is infinite. A group with an infinity or a NaN becomes NaNs. Sources:
// DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3 (groups of 128, E4M3 in all three products); Open
// Compute Project, "OCP Microscaling Formats (MX) Specification", 1.0, 2023 (UE8M0 scales, NaN scales).
#pragma once
#include <bit>
#include <cstdint>

namespace weft::float8_groups {

inline constexpr int64_t kGroup = 128;

struct Scale {
  float value, inverse;
};

// `largest`: the bits of the group's largest magnitude as f32, by which magnitudes, infinities and NaNs are ordered.
constexpr Scale scale_of(uint32_t largest) {
  constexpr uint32_t kLeast = 127 - 117;
  if (largest >= 0x7f800000u) return {std::bit_cast<float>(0x7fc00000u), std::bit_cast<float>(0x7fc00000u)};
  // 448 is 1.75 x 2^8: a larger mantissa takes the next exponent.
  const uint32_t exponent = (largest + 0x1fffffu) >> 23, biased = exponent < kLeast + 8 ? kLeast : exponent - 8;
  return {std::bit_cast<float>(biased << 23), std::bit_cast<float>((254 - biased) << 23)};
}

// x on the grid.
constexpr float rounded(float x, const Scale& s) {
  constexpr float kSteps = 0x1.8p14f;  // adding it rounds to multiples of 2^-9, which codes below 2^-6 are
  const float code = x * s.inverse;
  const uint32_t bits = std::bit_cast<uint32_t>(code);
  const float normal = std::bit_cast<float>((bits + 0x7ffffu + (bits >> 20 & 1)) & 0xfff00000u);
  const float small = (code + kSteps) - kSteps;
  const bool is_small = (bits & 0x7fffffffu) < 0x3c800000u;  // below 2^-6
  return (is_small ? small : normal) * s.value;
}

}  // namespace weft::float8_groups
