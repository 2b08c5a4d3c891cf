// Masters in two halves: the same bits when they are joined, and an upper half that is the nearest bf16.
#include "weft/kernels/master_halves.h"

#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

std::vector<float> numbers() {
  std::vector<float> all = {0.0f,        -0.0f,      1.0f,    1 + 0x1p-8f,    -(1 + 0x1p-8f), 1 + 3 * 0x1p-8f,
                            0x1p-149f,   -0x1p-133f, 3.4e38f, 1 - 0x1p-24f,   65535.99f,      -INFINITY,
                            INFINITY,    NAN,        -NAN,    1 + 0x1.fep-8f, 0x1p-126f,      0x7fffp-149f,
                            0x8000p-149f};
  for (int i = 0; i < 1000; ++i) all.push_back(std::ldexp(philox_normal(1, 2, uint64_t(i)), i % 200 - 100));
  return all;
}

TEST(MasterHalvesTest, AreTheMasterAndTheNearestBf16) {
  int ties = 0;
  for (const float x : numbers()) {
    const MasterHalves halves = MasterHalves::of(x);
    EXPECT_EQ(std::bit_cast<uint32_t>(halves.whole()), std::bit_cast<uint32_t>(x)) << x;
    const bool is_tie = halves.lower == 0x8000;
    ties += is_tie;
    if (!is_tie) EXPECT_EQ(halves.upper.bits, BFloat16(x).bits) << x;
  }
  EXPECT_EQ(ties, 4);  // of the list: they round away from zero
  EXPECT_EQ(float(MasterHalves::of(1 + 0x1p-8f).upper), 1 + 0x1p-7f);
  EXPECT_EQ(float(MasterHalves::of(-(1 + 0x1p-8f)).upper), -(1 + 0x1p-7f));
}

TEST(MasterHalvesTest, EveryTableMakesTheSame) {
  const std::vector<float> all = numbers();
  Workbench bench(2);
  for (const int64_t count : {0, 1, 7, 8, 65, int(all.size())}) {
    const Shape shape{count};
    const Tensor x = bench.empty(DType::f32, shape), upper = bench.empty(DType::bf16, shape),
                 lower = bench.empty(DType::u16, shape);
    std::copy_n(all.begin(), count, x.data<float>());
    reference_kernels().split_masters(bench.stream, upper, lower, x);
    for (int64_t i = 0; i < count; ++i) {
      const MasterHalves halves = MasterHalves::of(all[size_t(i)]);
      ASSERT_EQ(upper.data<BFloat16>()[i].bits, halves.upper.bits);
      ASSERT_EQ(lower.data<uint16_t>()[i], halves.lower);
    }
    for (const int64_t target : compiled_targets()) {
      const OnTarget on_target(target);
      const Tensor high = bench.empty(DType::bf16, shape), low = bench.empty(DType::u16, shape),
                   back = bench.empty(DType::f32, shape);
      cpu::split_masters(bench.stream, high, low, x);
      EXPECT_EQ(std::memcmp(high.raw(), upper.raw(), upper.bytes()), 0) << hwy::TargetName(target);
      EXPECT_EQ(std::memcmp(low.raw(), lower.raw(), lower.bytes()), 0) << hwy::TargetName(target);
      cpu::join_masters(bench.stream, back, high, low);
      EXPECT_EQ(std::memcmp(back.raw(), x.raw(), x.bytes()), 0) << hwy::TargetName(target);
    }
  }
}

}  // namespace
}  // namespace weft
