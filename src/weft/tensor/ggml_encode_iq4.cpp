// Encoding ggml's blocks whose codes number the entries of a table: the scale of 32 values is the best of some that
// bring the extreme one near an end of the table.
#include <algorithm>
#include <cmath>

#include "weft/tensor/dtype.h"
#include "weft/tensor/ggml_block_layout.h"
#include "weft/tensor/ggml_codes.h"

namespace weft::ggml {
namespace {

constexpr int kSize = Iq4Nl::kSize;

// The number of the nearest entry.
int nearest(float x) {
  int code = 0;
  for (size_t i = 1; i < kIq4Table.size(); ++i) code += x > float(kIq4Table[i - 1] + kIq4Table[i]) / 2;
  return code;
}

std::array<int, kSize> codes_of(const float* x, float scale) {
  std::array<int, kSize> codes{};
  for (int i = 0; i < kSize; ++i) codes[size_t(i)] = nearest(x[i] * inverse(scale));
  return codes;
}

// What times the entries comes nearest to x, and how much of the sum of x's squares that accounts for.
struct Fit {
  double scale = 0, explained = 0;
  Fit() = default;
  Fit(const float* x, const std::array<int, kSize>& codes) {
    double tt = 0, tx = 0;
    for (int i = 0; i < kSize; ++i) {
      const double t = kIq4Table[size_t(codes[size_t(i)])];
      tt += t * t, tx += t * double(x[i]);
    }
    if (tt > 0) scale = tx / tt, explained = tx * tx / tt;
  }
};

// Entries reach further below 0 than above: scales of either sign are tried.
float best_scale(const float* x) {
  const float extreme = *std::max_element(x, x + kSize, [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (!(std::abs(extreme) > 1e-30f)) return 0;
  Fit best;
  constexpr int kEnds[] = {-127, 113};
  for (const int end : kEnds)
    for (int off = -8; off <= 24; off += 2) {
      const Fit fit(x, codes_of(x, extreme / float(end > 0 ? end + off : end - off)));
      if (fit.explained > best.explained) best = fit;
    }
  return float(best.scale);
}

Nibbles packed(const std::array<int, kSize>& codes) {
  Nibbles q;
  for (size_t i = 0; i < q.size(); ++i) q[i] = uint8_t(codes[i] | codes[i + q.size()] << 4);
  return q;
}

}  // namespace

Iq4Nl Iq4Nl::encode(const float* x) {
  const uint16_t d = Float16::to_bits(best_scale(x));
  return {d, packed(codes_of(x, Float16::from_bits(d)))};
}

Iq4Xs Iq4Xs::encode(const float* x) {
  constexpr int kHalf = 32;  // scales are from -32 to 31 times d
  std::array<float, 8> scales{};
  for (size_t j = 0; j < scales.size(); ++j) scales[j] = best_scale(x + j * ggml::kSize);
  const float largest = *std::ranges::max_element(scales, {}, [](float s) { return std::abs(s); });
  Iq4Xs block{.d = Float16::to_bits(largest / -kHalf)};
  const float d = Float16::from_bits(block.d);
  for (size_t j = 0; j < scales.size(); ++j) {
    const int scale = code_of(scales[j] * inverse(d) + float(kHalf), 2 * kHalf - 1);
    block.low[j / 2] = uint8_t(block.low[j / 2] | (scale & 15) << j % 2 * 4);
    block.high = uint16_t(block.high | scale >> 4 << 2 * j);
    block.q[j] = packed(codes_of(x + j * ggml::kSize, d * float(scale - kHalf)));
  }
  return block;
}

}  // namespace weft::ggml
