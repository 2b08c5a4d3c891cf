// Encoding the K family: scales and minima of sub-blocks by least squares, then as small integers of a common unit.
#include <algorithm>
#include <cmath>

#include "weft/tensor/dtype.h"
#include "weft/tensor/ggml_block_layout.h"
#include "weft/tensor/ggml_codes.h"

namespace weft::ggml {
namespace {

constexpr int kElements = 256;

float as_half(float x) { return Float16::from_bits(Float16::to_bits(x)); }

// The sum of term(i), in lanes that a compiler can keep in one register.
template <int kSize, class Term>
float sum_of(Term&& term) {
  constexpr int kLanes = 8;
  float lanes[kLanes] = {};
  for (int i = 0; i < kSize; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// x as scale q - minimum, with codes q of 0..levels.
struct Line {
  float scale = 0, minimum = 0;
};

// Squared error when each x gets the nearest code.
template <int kSize>
float error_of(const float* x, Line line, int levels) {
  const float inv = inverse(line.scale);
  return sum_of<kSize>([&](int i) {
    const float off = line.scale * float(code_of((x[i] + line.minimum) * inv, levels)) - line.minimum - x[i];
    return off * off;
  });
}

// The line of least squares through x for the codes that x has with a scale of 1 / inv from `low` up.
template <int kSize>
Line solve_line(const float* x, float low, float inv, int levels) {
  float q[kSize];
  for (int i = 0; i < kSize; ++i) q[i] = float(code_of((x[i] - low) * inv, levels));
  const float q1 = sum_of<kSize>([&](int i) { return q[i]; }), q2 = sum_of<kSize>([&](int i) { return q[i] * q[i]; });
  const float x1 = sum_of<kSize>([&](int i) { return x[i]; }), xq = sum_of<kSize>([&](int i) { return x[i] * q[i]; });
  const float determinant = float(kSize) * q2 - q1 * q1;
  if (determinant <= 0) return {};
  const Line line{(float(kSize) * xq - x1 * q1) / determinant, (q1 * xq - q2 * x1) / determinant};
  if (line.minimum >= 0) return line;
  return {xq / q2, 0};  // minima are not negative
}

// The best of lines whose codes span a little more or less than the range of x.
template <int kSize>
Line fit_line(const float* x, int levels) {
  constexpr int kSteps = 20;
  const auto [smallest, largest] = std::minmax_element(x, x + kSize);
  const float low = std::min(0.0f, *smallest), range = *largest - low;
  Line best{range / float(levels), -low};
  if (range <= 0) return best;
  float least = error_of<kSize>(x, best, levels);
  for (int step = 0; step <= kSteps; ++step) {
    const float inv = (float(levels) - 1 + 0.1f * float(step)) / range;
    const Line line = solve_line<kSize>(x, low, inv, levels);
    const float error = error_of<kSize>(x, line, levels);
    if (error < least) least = error, best = line;
  }
  return best;
}

// A super-block as d s q - dmin m.
template <int kSubBlocks, int kLevels, int kMaxScale>
struct Lines {
  static constexpr int kSize = kElements / kSubBlocks;
  float d = 0, dmin = 0;  // as halves hold them
  std::array<int, kSubBlocks> scales{}, minima{};
  std::array<int, kElements> q{};

  Line line(int j) const { return {d * float(scales[j]), dmin * float(minima[j])}; }

  explicit Lines(const float* x) {
    std::array<Line, kSubBlocks> lines;
    for (int j = 0; j < kSubBlocks; ++j) {
      lines[j] = fit_line<kSize>(x + j * kSize, kLevels);
      d = std::max(d, lines[j].scale / kMaxScale);
      dmin = std::max(dmin, lines[j].minimum / kMaxScale);
    }
    d = as_half(d), dmin = as_half(dmin);
    for (int j = 0; j < kSubBlocks; ++j) {
      scales[j] = code_of(lines[j].scale * inverse(d), kMaxScale);
      minima[j] = code_of(lines[j].minimum * inverse(dmin), kMaxScale);
      improve(x + j * kSize, j);
    }
    set_codes(x);
    solve_units(x);
    set_codes(x);
  }

  // Takes the best of the neighbouring integers.
  void improve(const float* x, int j) {
    const int scale = scales[j], minimum = minima[j];
    float least = error_of<kSize>(x, line(j), kLevels);
    for (int s = std::max(0, scale - 1); s <= std::min(kMaxScale, scale + 1); ++s) {
      for (int m = std::max(0, minimum - 1); m <= std::min(kMaxScale, minimum + 1); ++m) {
        const float error = error_of<kSize>(x, {d * float(s), dmin * float(m)}, kLevels);
        if (error < least) least = error, scales[j] = s, minima[j] = m;
      }
    }
  }

  void set_codes(const float* x) {
    for (int i = 0; i < kElements; ++i) {
      const Line l = line(i / kSize);
      q[i] = code_of((x[i] + l.minimum) * inverse(l.scale), kLevels);
    }
  }

  // Least squares for d and dmin with all integers as they are.
  void solve_units(const float* x) {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < kElements; ++i) {
      const double a = scales[i / kSize] * q[i], b = -minima[i / kSize];
      aa += a * a, ab += a * b, bb += b * b, ax += a * double(x[i]), bx += b * double(x[i]);
    }
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
      const double new_d = (ax * bb - bx * ab) / determinant, new_dmin = (aa * bx - ab * ax) / determinant;
      if (new_d > 0 && new_dmin > 0) d = as_half(float(new_d)), dmin = as_half(float(new_dmin));
    } else if (aa > 0 && bb == 0) {
      d = as_half(float(ax / aa));
    }
  }
};

// x as scale q, with codes q of -half..half - 1: the best of scales that put the extreme value at about -half.
template <int kSize>
float fit_scale(const float* x, int half) {
  constexpr int kSteps = 9;
  const float extreme = *std::max_element(x, x + kSize, [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (std::abs(extreme) < 1e-30f) return 0;
  float best = 0, most = 0;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float inv = -(float(half) + 0.1f * float(step)) / extreme;
    float q[kSize];
    for (int i = 0; i < kSize; ++i) q[i] = float(code_of(x[i] * inv + float(half), 2 * half - 1) - half);
    const float xq = sum_of<kSize>([&](int i) { return x[i] * q[i]; });
    const float q2 = sum_of<kSize>([&](int i) { return q[i] * q[i]; });
    // The error is that of x alone less xq^2 / q2.
    if (q2 > 0 && xq * xq > most * q2) most = xq * xq / q2, best = xq / q2;
  }
  return best;
}

// A super-block of 16 sub-blocks as d s q, with s of -kMaxScale - 1..kMaxScale.
template <int kHalf, int kMaxScale>
struct Scales {
  static constexpr int kSubBlocks = 16, kSize = 16;
  float d = 0;
  std::array<int, kSubBlocks> scales{};
  std::array<int, kElements> q{};  // from 0

  explicit Scales(const float* x) {
    std::array<float, kSubBlocks> fitted;
    float extreme = 0;
    for (int j = 0; j < kSubBlocks; ++j) {
      fitted[j] = fit_scale<kSize>(x + j * kSize, kHalf);
      if (std::abs(fitted[j]) > std::abs(extreme)) extreme = fitted[j];
    }
    d = as_half(extreme / float(-kMaxScale - 1));
    for (int j = 0; j < kSubBlocks; ++j) {
      scales[j] = code_of(fitted[j] * inverse(d) + float(kMaxScale + 1), 2 * kMaxScale + 1) - kMaxScale - 1;
      improve(x + j * kSize, j);
    }
    set_codes(x);
    solve_unit(x);
    set_codes(x);
  }

  static float error_of(const float* x, float scale) {
    const float inv = inverse(scale);
    return sum_of<kSize>([&](int i) {
      const float off = scale * float(code_of(x[i] * inv + float(kHalf), 2 * kHalf - 1) - kHalf) - x[i];
      return off * off;
    });
  }

  void improve(const float* x, int j) {
    const int scale = scales[j];
    float least = error_of(x, d * float(scale));
    for (int s = std::max(-kMaxScale - 1, scale - 1); s <= std::min(kMaxScale, scale + 1); ++s) {
      const float error = error_of(x, d * float(s));
      if (error < least) least = error, scales[j] = s;
    }
  }

  void set_codes(const float* x) {
    for (int i = 0; i < kElements; ++i) {
      q[i] = code_of(x[i] * inverse(d * float(scales[i / kSize])) + float(kHalf), 2 * kHalf - 1);
    }
  }

  void solve_unit(const float* x) {
    double aa = 0, ax = 0;
    for (int i = 0; i < kElements; ++i) {
      const double a = scales[i / kSize] * (q[i] - kHalf);
      aa += a * a, ax += a * double(x[i]);
    }
    if (aa > 0) d = as_half(float(ax / aa));
  }
};

// The reverse of two_bits and four_bits of the decoder.
void put_two_bits(std::array<uint8_t, 64>& packed, int i, int bits) {
  uint8_t& byte = packed[i / 128 * 32 + i % 32];
  byte = uint8_t(byte | bits << i % 128 / 32 * 2);
}
void put_four_bits(std::array<uint8_t, 128>& packed, int i, int bits) {
  uint8_t& byte = packed[i / 64 * 32 + i % 32];
  byte = uint8_t(byte | bits << i % 64 / 32 * 4);
}

}  // namespace

void ScalesAndMinima::set(int j, int scale, int minimum) {
  const auto put = [&](int at, int bits) { bytes[at] = uint8_t(bytes[at] | bits); };
  if (j < 4) {
    put(j, scale), put(j + 4, minimum);
  } else {
    put(j + 4, (scale & 15) | (minimum & 15) << 4);
    put(j - 4, scale >> 4 << 6), put(j, minimum >> 4 << 6);
  }
}

Q2_K Q2_K::encode(const float* x) {
  const Lines<16, 3, 15> lines(x);
  Q2_K block{.d = Float16::to_bits(lines.d), .dmin = Float16::to_bits(lines.dmin)};
  for (int j = 0; j < 16; ++j) block.scales[j] = uint8_t(lines.scales[j] | lines.minima[j] << 4);
  for (int i = 0; i < kSize; ++i) put_two_bits(block.q, i, lines.q[i]);
  return block;
}

Q3_K Q3_K::encode(const float* x) {
  const Scales<4, 31> scaled(x);
  Q3_K block{.d = Float16::to_bits(scaled.d)};
  for (int j = 0; j < 16; ++j) {
    const int bits = scaled.scales[j] + 32;
    block.scales[j % 8] = uint8_t(block.scales[j % 8] | (bits & 15) << j / 8 * 4);
    block.scales[8 + j % 4] = uint8_t(block.scales[8 + j % 4] | bits >> 4 << j / 4 * 2);
  }
  for (int i = 0; i < kSize; ++i) {
    put_two_bits(block.low, i, scaled.q[i] & 3);
    block.high[i % 32] = uint8_t(block.high[i % 32] | scaled.q[i] >> 2 << i / 32);
  }
  return block;
}

Q4_K Q4_K::encode(const float* x) {
  const Lines<8, 15, 63> lines(x);
  Q4_K block{.d = Float16::to_bits(lines.d), .dmin = Float16::to_bits(lines.dmin)};
  for (int j = 0; j < 8; ++j) block.scales.set(j, lines.scales[j], lines.minima[j]);
  for (int i = 0; i < kSize; ++i) put_four_bits(block.q, i, lines.q[i]);
  return block;
}

Q5_K Q5_K::encode(const float* x) {
  const Lines<8, 31, 63> lines(x);
  Q5_K block{.d = Float16::to_bits(lines.d), .dmin = Float16::to_bits(lines.dmin)};
  for (int j = 0; j < 8; ++j) block.scales.set(j, lines.scales[j], lines.minima[j]);
  for (int i = 0; i < kSize; ++i) {
    put_four_bits(block.low, i, lines.q[i] & 15);
    block.high[i % 32] = uint8_t(block.high[i % 32] | lines.q[i] >> 4 << i / 32);
  }
  return block;
}

Q6_K Q6_K::encode(const float* x) {
  const Scales<32, 127> scaled(x);
  Q6_K block{.d = Float16::to_bits(scaled.d)};
  for (int j = 0; j < 16; ++j) block.scales[j] = int8_t(scaled.scales[j]);
  for (int i = 0; i < kSize; ++i) {
    uint8_t& byte = block.low[i / 128 * 64 + i % 64];
    byte = uint8_t(byte | (scaled.q[i] & 15) << i % 128 / 64 * 4);
    put_two_bits(block.high, i, scaled.q[i] >> 4);
  }
  return block;
}

}  // namespace weft::ggml
