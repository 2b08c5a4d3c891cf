// Rotary embedding against its formula in double, and the rotation back.
#include <gtest/gtest.h>

#include <hwy/targets.h>
#include <cmath>

#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

struct RopeCase {
  int tokens, heads, dim, half;  // the first 2 * half elements of a head turn
};

class CpuRope : public testing::TestWithParam<std::tuple<RopeCase, DType, bool>> {
 protected:
  static constexpr int kPositions = 50;

  CpuRope() {
    const auto [c, dtype, inverse] = GetParam();
    cos_ = allocator_.empty(DType::f32, {kPositions, c.half}),
    sin_ = allocator_.empty(DType::f32, {kPositions, c.half});
    for (int64_t i = 0; i < cos_.numel(); ++i) {
      cos_.data<float>()[i] = float(std::cos(0.37 * double(i))),
      sin_.data<float>()[i] = float(std::sin(0.37 * double(i)));
    }
    x_ = allocator_.empty(dtype, {c.tokens, c.heads, c.dim});
    for (int64_t i = 0; i < x_.numel(); ++i) set(i, float((i * 7919) % 1009) / 500.0f - 1.0f);
    for (int t = 0; t < c.tokens; ++t) positions_.push_back((t * 17 + 3) % kPositions);
  }
  float get(int64_t i) const {
    switch (x_.dtype()) {
      case DType::f32: return x_.data<float>()[i];
      case DType::bf16: return float(x_.data<BFloat16>()[i]);
      default: return float(x_.data<Float16>()[i]);
    }
  }
  void set(int64_t i, float value) {
    switch (x_.dtype()) {
      case DType::f32: x_.data<float>()[i] = value; break;
      case DType::bf16: x_.data<BFloat16>()[i] = BFloat16(value); break;
      default: x_.data<Float16>()[i] = Float16(value);
    }
  }
  std::vector<float> values() const {
    std::vector<float> result;
    for (int64_t i = 0; i < x_.numel(); ++i) result.push_back(get(i));
    return result;
  }

  Allocator allocator_;
  ThreadTeam team_{3};
  Stream stream_{team_, allocator_};
  Tensor x_, cos_, sin_;
  std::vector<int32_t> positions_;
};

TEST_P(CpuRope, EqualsItsFormula) {
  const auto [c, dtype, inverse] = GetParam();
  const double tolerance = dtype == DType::f32 ? 1e-6 : 8e-3;
  for (const bool older_cpu : {false, true}) {
    const std::vector<float> before = values();
    if (older_cpu) hwy::SetSupportedTargetsForTest(HWY_AVX2);
    cpu::rope(stream_, RopeArgs{x_, cos_, sin_, positions_.data(), inverse});
    hwy::SetSupportedTargetsForTest(0);
    for (int64_t i = 0; i < x_.numel(); ++i) {
      const int64_t token = i / (c.heads * c.dim), e = i % c.dim;
      double expected = before[i];
      if (e < 2 * c.half) {
        const int64_t at = positions_[token] * c.half + e % c.half;
        const double cosine = cos_.data<float>()[at], sine = sin_.data<float>()[at] * (inverse ? -1 : 1);
        expected = e < c.half ? before[i] * cosine - before[i + c.half] * sine
                              : before[i] * cosine + before[i - c.half] * sine;
        ASSERT_NEAR(get(i), expected, tolerance * 2) << "element " << i;
      } else {
        ASSERT_EQ(get(i), before[i]) << "element " << i << " does not turn";
      }
    }
  }
}

TEST_P(CpuRope, TurnsBack) {
  const auto [c, dtype, inverse] = GetParam();
  const std::vector<float> before = values();
  cpu::rope(stream_, RopeArgs{x_, cos_, sin_, positions_.data(), inverse});
  cpu::rope(stream_, RopeArgs{x_, cos_, sin_, positions_.data(), !inverse});
  for (int64_t i = 0; i < x_.numel(); ++i) ASSERT_NEAR(get(i), before[i], dtype == DType::f32 ? 1e-6 : 2e-2);
}

TEST_P(CpuRope, RefusesAPositionOutsideTheTables) {
  const auto [c, dtype, inverse] = GetParam();
  positions_.back() = kPositions;
  EXPECT_THROW(cpu::rope(stream_, RopeArgs{x_, cos_, sin_, positions_.data(), inverse}), Error);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuRope,
                         testing::Combine(testing::Values(RopeCase{33, 2, 64, 32}, RopeCase{70, 3, 128, 64},
                                                          RopeCase{5, 1, 2, 1}, RopeCase{9, 2, 80, 20},
                                                          RopeCase{200, 4, 37, 11}),
                                          testing::Values(DType::f32, DType::bf16, DType::f16), testing::Bool()));

}  // namespace
}  // namespace weft
