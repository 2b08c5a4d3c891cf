// Encoding ggml's blocks of 32: one rounding per value, with the arithmetic of ggml's reference, so
// that the bytes are those that it gives.
#include <algorithm>
#include <cmath>

#include "weft/tensor/dtype.h"
#include "weft/tensor/float4.h"
#include "weft/tensor/ggml_block_layout.h"
#include "weft/tensor/ggml_codes.h"

namespace weft::ggml {
namespace {

// The value of the largest magnitude, with its sign; the first of equals.
float extreme_of(const float* x, int n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::abs(a) < std::abs(b); });
}

// To the nearest integer, halves away from zero; 0 of what is none.
int rounded(float x) {
  const float magnitude = std::abs(x);
  if (!(magnitude < 1e9f)) return 0;
  const int whole = int(magnitude);
  const int up = whole + (magnitude - float(whole) >= 0.5f);
  return x < 0 ? -up : up;
}

// Codes 0..2 n - 1 of d (q - n), where the extreme value gets code 0.
struct Symmetric {
  uint16_t d;
  std::array<int, 32> q;
  Symmetric(const float* x, int n) {
    const float scale = extreme_of(x, 32) / float(-n), inv = inverse(scale);
    d = Float16::to_bits(scale);
    for (size_t i = 0; i < 32; ++i) q[i] = code_of(x[i] * inv + float(n), 2 * n - 1);
  }
};

// Codes 0..levels of d q + m, from the smallest to the largest value.
struct Affine {
  uint16_t d, m;
  std::array<int, 32> q;
  Affine(const float* x, int levels) {
    const auto [low, high] = std::minmax_element(x, x + 32);
    const float scale = (*high - *low) / float(levels), inv = inverse(scale);
    d = Float16::to_bits(scale), m = Float16::to_bits(*low);
    for (size_t i = 0; i < 32; ++i) q[i] = code_of((x[i] - *low) * inv, levels);
  }
};

Nibbles low_nibbles(const std::array<int, 32>& q) {
  Nibbles packed;
  for (size_t i = 0; i < 16; ++i) packed[i] = uint8_t((q[i] & 15) | (q[i + 16] & 15) << 4);
  return packed;
}

FifthBits fifth_bits(const std::array<int, 32>& q) {
  FifthBits packed{};
  for (size_t i = 0; i < 32; ++i) packed[i / 8] = uint8_t(packed[i / 8] | (q[i] >> 4) << i % 8);
  return packed;
}

}  // namespace

Q4_0 Q4_0::encode(const float* x) {
  const Symmetric codes(x, 8);
  return {codes.d, low_nibbles(codes.q)};
}

Q4_1 Q4_1::encode(const float* x) {
  const Affine codes(x, 15);
  return {codes.d, codes.m, low_nibbles(codes.q)};
}

Q5_0 Q5_0::encode(const float* x) {
  const Symmetric codes(x, 16);
  return {codes.d, fifth_bits(codes.q), low_nibbles(codes.q)};
}

Q5_1 Q5_1::encode(const float* x) {
  const Affine codes(x, 31);
  return {codes.d, codes.m, fifth_bits(codes.q), low_nibbles(codes.q)};
}

Q8_0 Q8_0::encode(const float* x) {
  const float scale = std::abs(extreme_of(x, kSize)) / 127, inv = inverse(scale);
  Q8_0 block{.d = Float16::to_bits(scale)};
  for (size_t i = 0; i < size_t(kSize); ++i) block.q[i] = int8_t(rounded(x[i] * inv));
  return block;
}

// The largest becomes 4 to below 8, of which what is above 6 is 6. What lies in the middle goes to the code that is
// first.
Mxfp4 Mxfp4::encode(const float* x) {
  constexpr int kBias = 127, kExponentOf4 = 2;
  const float largest = std::abs(extreme_of(x, kSize));
  Mxfp4 block{.scale = 0, .q = {}};
  if (!(largest > 0)) return block;
  block.scale = uint8_t(std::max(std::ilogb(largest) - kExponentOf4 + kBias, 0));
  const float inverse = 1 / float_of_e8m0(block.scale);  // finite, where 2 in place of 1 need not be
  const auto code_of = [inverse](float value) {
    const float twice = std::abs(value) * inverse * 2;
    unsigned code = 0;
    for (size_t i = 1; i < kTwiceE2M1.size() / 2; ++i) code += twice > float(kTwiceE2M1[i - 1] + kTwiceE2M1[i]) / 2;
    return value < 0 && code > 0 ? code | 8 : code;
  };
  for (size_t i = 0; i < block.q.size(); ++i)
    block.q[i] = uint8_t(code_of(x[i]) | code_of(x[i + block.q.size()]) << 4);
  return block;
}

}  // namespace weft::ggml
