// Block codes: the 8-bit numbers of optimizer states. Source: Dettmers et al., "8-bit Optimizers via Block-wise
// Quantization", 2021 (dynamic tree quantization).
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "weft/tensor/tensor.h"

namespace weft::block_codes {

// Magnitudes relative to the largest of a block cover seven decades. Decade i, from 10^(i-7) to 10^(i-6), has 2^i
// intervals of the same width, or twice as many without a sign; a code stands for the middle of its interval, and all
// are scaled so that the last one stands for 1. Code 0 is zero; with a sign, codes from 128 on are negative.
constexpr int kBlock = 256;
constexpr int kDecades = 7;

constexpr int64_t num_blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

// The first code of a decade, which has as many intervals where there is a sign and one more where there is none.
constexpr int intervals(int decade, bool is_signed) { return (is_signed ? 1 : 2) << decade; }
constexpr int first_code(int decade, bool is_signed) { return intervals(decade, is_signed) - (is_signed ? 0 : 1); }
// The middle of the last interval, as a part of the end of its decade.
constexpr double top(bool is_signed) { return 1 - 0.45 / intervals(kDecades - 1, is_signed); }

using Table = std::array<float, 256>;
constexpr Table make_table(bool is_signed) {
  Table table{};
  double end = 1;
  for (int decade = kDecades - 1; decade >= 0; --decade, end /= 10)
    for (int i = 0; i < intervals(decade, is_signed); ++i) {
      const double middle = end * (0.1 + 0.9 * (i + 0.5) / intervals(decade, is_signed));
      const size_t code = size_t(first_code(decade, is_signed) + i);
      table[code] = float(middle / top(is_signed));
      if (is_signed) table[code + 128] = -table[code];
    }
  table[size_t(first_code(kDecades - 1, is_signed) + intervals(kDecades - 1, is_signed) - 1)] = 1;
  if (is_signed) table[255] = -1;
  return table;
}
inline constexpr Table kSigned = make_table(true), kUnsigned = make_table(false);

constexpr const Table& table(bool is_signed) { return is_signed ? kSigned : kUnsigned; }

// Where decades end, and what brings them to [0.1, 1).
inline constexpr std::array<float, kDecades> kEnds = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
inline constexpr std::array<float, kDecades> kFactors = {1e6f, 1e5f, 1e4f, 1e3f, 1e2f, 1e1f, 1};
constexpr float kLeast = 1e-7f;
constexpr float kSmallest = 1e-37f;  // of scales that are not 0

// What x is multiplied with before it is encoded; a block of less than the smallest normal numbers is all zeros.
inline float inverse_of(float scale) { return scale < kSmallest ? 0.0f : 1 / scale; }

// The decade of a magnitude below 1. That of the power of two below it is a line of the exponent (77/256 is about the
// logarithm of 2), where the largest border between two decades is at most one further.
constexpr int kPerExponent = 77, kOfOne = 1780;
inline int decade_of(float y) {
  const int exponent = int(std::bit_cast<uint32_t>(y) >> 23) - 127;
  const int decade = std::clamp((kPerExponent * exponent + kOfOne) >> 8, 0, kDecades - 1);
  return decade + (y >= kEnds[size_t(decade)] ? 1 : 0);
}

// The code of x, with |x| <= 1 but for rounding. Without a sign what is not zero does not become zero.
inline uint8_t encode(float x, bool is_signed) {
  const float y = std::abs(x) * float(top(is_signed));
  const int decade = std::min(decade_of(y), kDecades - 1);
  const int n = intervals(decade, is_signed);
  const float place = (y * kFactors[size_t(decade)] - 0.1f) * (float(n) / 0.9f);
  int code = first_code(decade, is_signed) + int(std::fmin(std::fmax(place, 0.0f), float(n - 1)));
  if (is_signed ? y < kLeast : y == 0) code = 0;
  return uint8_t(code == 0 || !is_signed || x >= 0 ? code : code + 128);
}

}  // namespace weft::block_codes
