// Blocks that weft rounds floats to: each code is the nearest that there is, and a block decodes to what its codes
// say.
#include "weft/kernels/block_layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "weft/base/philox.h"
#include "weft/kernels/nf4.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/float8.h"

namespace weft {
namespace {

// 2^(e - 7) (1 + m / 8), and 2^-6 m / 8 where e is 0.
double e4m3(int code) {
  const int e = code >> 3 & 15, m = code & 7;
  const double magnitude = e == 0 ? std::pow(2.0, -6) * m / 8 : std::pow(2.0, e - 7) * (1 + m / 8.0);
  return code & 0x80 ? -magnitude : magnitude;
}

TEST(Float8Test, CodesStandForTheirNumbers) {
  for (int code = 0; code < 256; ++code) {
    const auto x = Float8E4M3::from_bits(uint8_t(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(float(x)) && !x.is_number());
      continue;
    }
    EXPECT_EQ(double(float(x)), e4m3(code)) << code;
    EXPECT_EQ(Float8E4M3::from(float(x)).bits, code);
  }
}

TEST(Float8Test, RoundsToTheNearestWithTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = e4m3(code), high = e4m3(code + 1);
    const auto middle = float((low + high) / 2);
    EXPECT_EQ(Float8E4M3::from(middle).bits, code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(Float8E4M3::from(std::nextafter(middle, 0.0f)).bits, code);
    EXPECT_EQ(Float8E4M3::from(-std::nextafter(middle, 1e9f)).bits, 0x80 | (code + 1));
  }
  EXPECT_EQ(Float8E4M3::from(1e9f).bits, 0x7e);
  EXPECT_EQ(Float8E4M3::from(-std::numeric_limits<float>::infinity()).bits, 0xfe);
  EXPECT_FALSE(Float8E4M3::from(std::numeric_limits<float>::quiet_NaN()).is_number());
}

std::vector<float> some_values(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(float(0.05 * philox_normal(5, 9, uint64_t(i))));
  return values;
}

template <class Block>
void expect_decodes_near(const Block& block, const std::vector<float>& values,
                         const std::function<float(float)>& step) {
  std::vector<float> decoded(values.size());
  block.decode(decoded.data());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_LE(std::abs(decoded[i] - values[i]), 0.5001f * step(values[i])) << i << ": " << values[i];
}

TEST(BlockLayoutTest, RoundsToWhatIsNear) {
  const std::vector<float> values = some_values(128);
  float largest = 0;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  expect_decodes_near(blocks::Int8::encode(values.data(), largest), values, [&](float) { return largest / 127; });
  expect_decodes_near(blocks::Fp8::encode(values.data(), largest), values, [&](float x) {
    const float unit = largest / 448;
    return std::max(std::exp2(std::floor(std::log2(std::abs(x) / unit * 1.07f)) - 3), 0x1p-9f) * unit;
  });
  const std::vector<float> half(values.begin(), values.begin() + 64);
  largest = 0;
  for (const float x : half) largest = std::max(largest, std::abs(x));
  std::vector<float> decoded(64);
  blocks::Nf4::encode(half.data()).decode(decoded.data());
  for (size_t i = 0; i < 64; ++i) {
    float least = 1e9f;
    for (const float code : nf4::kTable) least = std::min(least, std::abs(code * largest - half[i]));
    EXPECT_NEAR(std::abs(decoded[i] - half[i]), least, 1e-6f) << i;
  }
}

TEST(BlockLayoutTest, ZerosStayZeros) {
  const std::vector<float> zeros(128, 0.0f);
  std::vector<float> decoded(128, 1.0f);
  const auto expect_zeros = [&](const auto& block) {
    block.decode(decoded.data());
    for (int i = 0; i < block.kSize; ++i) EXPECT_EQ(decoded[size_t(i)], 0);
  };
  expect_zeros(blocks::Fp8::encode(zeros.data(), 0));
  expect_zeros(blocks::Int8::encode(zeros.data(), 0));
  expect_zeros(blocks::Nf4::encode(zeros.data()));
}

TEST(BlockLayoutTest, CodesOfFourBitsAreCountedFromTheirZero) {
  blocks::W4<128> block{.scale = Float16::to_bits(0.25f), .zero = 9, .unused = 0, .q = {}};
  for (int i = 0; i < 128; ++i) block.set(i, i * 7 % 16);
  std::vector<float> decoded(128);
  block.decode(decoded.data());
  for (int i = 0; i < 128; ++i) EXPECT_EQ(decoded[size_t(i)], 0.25f * float(i * 7 % 16 - 9)) << i;
}

}  // namespace
}  // namespace weft
