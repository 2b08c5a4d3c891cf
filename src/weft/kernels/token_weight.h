// How likely a token is beside the most likely one, with the same bits wherever it is computed.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace weft::token_weighing {

inline constexpr int64_t kBlock = 512;  // tokens whose weights are summed by themselves
inline constexpr int64_t kLanes = 16;   // of a block every 16th is added up, then these sums
inline constexpr float kLowest = -87;   // exponents below it give 0

// What differences of logits are multiplied by.
inline float inverse_of(double temperature) {
  constexpr double kMost = 1e30;  // infinity times 0 would be no number
  return float(std::min(1 / temperature, kMost));
}

// e^x of x <= 0 is 2^n e^r, where r is at most half of log 2 and e^r = 1 + r + r^2 p(r); 0 below kLowest and of what
// is no number. Products and sums are rounded one by one. Source of the polynomial p: Moshier, Cephes, expf.
inline constexpr float kLog2e = 1.44269504f, kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f;
inline constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it leaves a whole number in the low bits
inline constexpr float kP0 = 1.9875691500e-4f, kP1 = 1.3981999507e-3f, kP2 = 8.3334519073e-3f, kP3 = 4.1665795894e-2f,
                       kP4 = 1.6666665459e-1f, kP5 = 5.0000001201e-1f;

inline float exp_nonpositive(float x) {
  // By masks, since a compiler may not make one of two computations of a choice that could trap.
  const int32_t is_inside = -int32_t(x >= kLowest);
  const auto inside =
      std::bit_cast<float>((std::bit_cast<int32_t>(x) & is_inside) | (std::bit_cast<int32_t>(kLowest) & ~is_inside));
  const float shifted = inside * kLog2e + kRound, n = shifted - kRound;
  const float r = (inside - n * kLog2High) - n * kLog2Low;
  const float p = ((((kP0 * r + kP1) * r + kP2) * r + kP3) * r + kP4) * r + kP5;
  const float of_rest = p * r * r + r + 1;
  const int32_t scaled = std::bit_cast<int32_t>(of_rest) + (std::bit_cast<int32_t>(shifted) << 23);
  return std::bit_cast<float>(scaled & is_inside);
}

}  // namespace weft::token_weighing
