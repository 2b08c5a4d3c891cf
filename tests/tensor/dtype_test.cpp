// 16-bit floats: every bit pattern there and back, and rounding between every two neighbours.
#include "weft/tensor/dtype.h"

#include <cmath>
#include <limits>

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
T from_bits(uint16_t bits) {
  T x;
  x.bits = bits;
  return x;
}

template <class T>
class HalfFloatTest : public testing::Test {};
using HalfFloats = testing::Types<BFloat16, Float16>;
TYPED_TEST_SUITE(HalfFloatTest, HalfFloats);

template <class T>
constexpr uint16_t kInfinityBits = std::is_same_v<T, BFloat16> ? 0x7f80 : 0x7c00;

TYPED_TEST(HalfFloatTest, EveryBitPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = from_bits<TypeParam>(uint16_t(bits));
    const bool is_nan = (bits & 0x7fffu) > kInfinityBits<TypeParam>;
    ASSERT_EQ(std::isnan(float(x)), is_nan) << bits;
    ASSERT_EQ(std::signbit(float(x)), bits >= 0x8000u) << bits;
    if (is_nan)
      ASSERT_TRUE(std::isnan(float(TypeParam(float(x))))) << bits;
    else
      ASSERT_EQ(TypeParam(float(x)).bits, bits) << bits;
  }
}

// Values grow with the bits, so neighbours in bits are neighbours in value; the middle of two goes to the even one.
TYPED_TEST(HalfFloatTest, RoundsToNearestAndTiesToEven) {
  for (uint16_t bits = 0; bits + 1 < kInfinityBits<TypeParam>; ++bits) {
    const float low = float(from_bits<TypeParam>(bits)), high = float(from_bits<TypeParam>(uint16_t(bits + 1)));
    const auto middle = float((double(low) + double(high)) / 2);  // exact: a float has more bits
    ASSERT_LT(low, high);
    ASSERT_EQ(TypeParam(middle).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(TypeParam(-middle).bits, 0x8000 + (bits % 2 == 0 ? bits : bits + 1)) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, -kInfinity)).bits, bits) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, kInfinity)).bits, bits + 1) << bits;
  }
}

TYPED_TEST(HalfFloatTest, OverflowsToInfinityHalfAStepAboveTheLargest) {
  const uint16_t largest_bits = kInfinityBits<TypeParam> - 1;
  const float largest = float(from_bits<TypeParam>(largest_bits));
  const float step = largest - float(from_bits<TypeParam>(uint16_t(largest_bits - 1)));
  const float limit = largest + step / 2;
  EXPECT_EQ(TypeParam(std::nextafter(limit, 0.0f)).bits, largest_bits);
  EXPECT_EQ(TypeParam(limit).bits, kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(-limit).bits, kInfinityBits<TypeParam> | 0x8000);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(kInfinity).bits, kInfinityBits<TypeParam>);
  EXPECT_EQ(TypeParam(-kInfinity).bits, kInfinityBits<TypeParam> | 0x8000);
}

TYPED_TEST(HalfFloatTest, NansStayNans) {
  // A payload in the low bits only must not round to infinity, and one of all ones must not carry into the sign.
  for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const auto x = TypeParam(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(float(x))) << bits;
    EXPECT_EQ(std::signbit(float(x)), bits >= 0x80000000u) << bits;
  }
}

TYPED_TEST(HalfFloatTest, ZeroKeepsItsSign) {
  EXPECT_EQ(TypeParam(0.0f).bits, 0);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TEST(DTypeTest, KnownValues) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(3.140625f).bits, 0x4049);
  EXPECT_EQ(Float16(1.0f).bits, 0x3c00);
  EXPECT_EQ(Float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Float16(0x1p-14f).bits, 0x0400);
}

struct DTypeCase {
  DType type;
  std::string name;
  size_t size;
  bool is_float;
};

TEST(DTypeTest, NamesAndSizes) {
  for (const DTypeCase& c : {DTypeCase{DType::f64, "f64", 8, true}, DTypeCase{DType::f32, "f32", 4, true},
                             DTypeCase{DType::bf16, "bf16", 2, true}, DTypeCase{DType::f16, "f16", 2, true},
                             DTypeCase{DType::i64, "i64", 8, false}, DTypeCase{DType::i32, "i32", 4, false},
                             DTypeCase{DType::u16, "u16", 2, false}, DTypeCase{DType::u8, "u8", 1, false}}) {
    EXPECT_EQ(name_of(c.type), c.name);
    EXPECT_EQ(size_of(c.type), c.size) << c.name;
    EXPECT_EQ(is_float(c.type), c.is_float) << c.name;
  }
}

}  // namespace
}  // namespace weft
