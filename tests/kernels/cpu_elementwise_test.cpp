// Element-wise operations, conversions and reductions on the cpu, against the reference.
#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

class CpuElementwiseTest : public testing::TestWithParam<std::tuple<DType, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(All, CpuElementwiseTest,
                         testing::Combine(testing::ValuesIn(kFloats),
                                          testing::Values(0, 1, 7, 63, 64, 65, 1000, 4099, 100000)),
                         [](const auto& test) {
                           return fmt::format("{}_{}", name_of(std::get<0>(test.param)), std::get<1>(test.param));
                         });

TEST_P(CpuElementwiseTest, AddAndScaleEqualReference) {
  const auto [dtype, count] = GetParam();
  Workbench bench;
  const Tensor a = bench.random(dtype, {count}, "a"), b = bench.random(dtype, {count}, "b");
  const Tensor sum = bench.copy(a), scaled = bench.copy(a);
  reference_kernels().add(bench.stream, sum, a, b);
  reference_kernels().scale(bench.stream, scaled, a, 1.7f);
  const double tolerance = rounding_of(dtype);
  expect_everywhere({{"sum", sum, tolerance},
                     {"sum in place of a", sum, tolerance, a},
                     {"sum in place of b", sum, tolerance, b},
                     {"scaled", scaled, tolerance},
                     {"scaled in place", scaled, tolerance, a}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::add(stream, out[0], a, b);
                      cpu::add(stream, out[1], out[1], b);
                      cpu::add(stream, out[2], a, out[2]);
                      cpu::scale(stream, out[3], a, 1.7f);
                      cpu::scale(stream, out[4], out[4], 1.7f);
                    });
}

TEST_P(CpuElementwiseTest, FillsAndConvertsLikeReference) {
  const auto [dtype, count] = GetParam();
  Workbench bench;
  std::vector<ExpectedOutput> outputs;
  for (const double value : {0.0, -0.0, 1.2345}) {
    const Tensor filled = bench.empty(dtype, {count});
    reference_kernels().fill(bench.stream, filled, float(value));
    outputs.push_back({"filled", filled});
  }
  const Tensor x = bench.random(dtype, {count}, "x");
  for (const DType to : kFloats) {
    const Tensor converted = bench.empty(to, {count});
    reference_kernels().convert(bench.stream, converted, x);
    outputs.push_back({fmt::format("converted to {}", name_of(to)), converted});
  }
  expect_everywhere(outputs, [&](Stream& stream, const std::vector<Tensor>& out) {
    cpu::fill(stream, out[0], 0.0f);
    cpu::fill(stream, out[1], -0.0f);
    cpu::fill(stream, out[2], 1.2345f);
    for (size_t i = 0; i < std::size(kFloats); ++i) cpu::convert(stream, out[3 + i], x);
  });
}

TEST_P(CpuElementwiseTest, SumOfSquaresEqualsReference) {
  const auto [dtype, count] = GetParam();
  Workbench bench;
  const Tensor x = bench.random(dtype, {count}, "x");
  const double expected = reference_kernels().sum_of_squares(bench.stream, {&x, 1});
  expect_everywhere({{"sum", bench.of(DType::f64, {1}, {expected}), 1e-14 * double(count + 1)}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      *out[0].data<double>() = cpu::sum_of_squares(stream, {&x, 1});
                    });
}

// Every bf16 and f16, and f32 around each border where rounding to 16 bits changes.
TEST(CpuConvert, RoundsEveryBorderToNearestEven) {
  Workbench bench;
  std::vector<float> floats;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      floats.push_back(std::bit_cast<float>(upper << 16 | lower));
    const float half = Float16::from_bits(uint16_t(upper));
    for (const uint32_t lower : {0x0u, 0xfffu, 0x1000u, 0x1001u})
      floats.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(half) + lower));
  }
  const auto count = int64_t(floats.size());
  const Tensor x = bench.empty(DType::f32, {count});
  std::memcpy(x.raw(), floats.data(), x.bytes());
  for (const DType to : {DType::bf16, DType::f16}) {
    const Tensor y = bench.empty(to, {count}), back = bench.empty(DType::f32, {count});
    reference_kernels().convert(bench.stream, y, x);
    reference_kernels().convert(bench.stream, back, y);
    expect_everywhere({{"rounded", y}, {"and back", back}}, [&](Stream& stream, const std::vector<Tensor>& out) {
      cpu::convert(stream, out[0], x);
      cpu::convert(stream, out[1], y);
    });
  }
}

TEST(CpuConvert, RoundsDoublesOnce) {
  Workbench bench;
  // Just above the middle of two bf16 or f16: rounding to f32 first would make it the middle, and then even.
  const Tensor x = bench.vector({1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, 1e300, -1e300});
  for (const DType to : {DType::bf16, DType::f16}) {
    const Tensor y = bench.empty(to, {5});
    reference_kernels().convert(bench.stream, y, x);
    expect_everywhere({{"y", y}},
                      [&](Stream& stream, const std::vector<Tensor>& out) { cpu::convert(stream, out[0], x); });
  }
}

TEST(CpuSumOfSquares, IsFiniteExactlyWhenElementsAre) {
  Workbench bench(2);
  const Tensor x = bench.random(DType::f32, {200000}, "x");
  float* data = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) data[i] = i % 2 ? 1e38f : -3e38f;
  const double expected = 200000 * (1e38 * 1e38 + 9e76) / 2;
  EXPECT_NEAR(cpu::sum_of_squares(bench.stream, {&x, 1}), expected, 1e-6 * expected);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), NAN}) {
    for (const int64_t at : {int64_t(0), int64_t(65535), int64_t(123457), int64_t(199999)}) {
      const float good = std::exchange(data[at], bad);
      EXPECT_FALSE(std::isfinite(cpu::sum_of_squares(bench.stream, {&x, 1}))) << bad << " at " << at;
      data[at] = good;
    }
  }
}

class CpuSumRowsTest : public testing::TestWithParam<std::tuple<int64_t, int64_t, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, CpuSumRowsTest,
                         testing::Combine(testing::Values(0, 1, 3, 70, 1001), testing::Values(1, 7, 64, 65, 515),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& test) {
                           return fmt::format("{}x{}_{}", std::get<0>(test.param), std::get<1>(test.param),
                                              name_of(std::get<2>(test.param)));
                         });

TEST_P(CpuSumRowsTest, EqualsReference) {
  const auto [rows, cols, dtype] = GetParam();
  Workbench bench;
  const Tensor x = bench.random(dtype, {rows, cols}, "x"), before = bench.random(DType::f32, {cols}, "before");
  const Tensor sums = bench.copy(before), added = bench.copy(before);
  reference_kernels().sum_rows(bench.stream, sums, x, false);
  reference_kernels().sum_rows(bench.stream, added, x, true);
  expect_everywhere({{"sums", sums, 2e-5}, {"added", added, 2e-5, before}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::sum_rows(stream, out[0], x, false);
                      cpu::sum_rows(stream, out[1], x, true);
                    });
}

TEST(CpuSumRows, TakesMoreColumnsThanPartialSumsHaveRoomFor) {
  Workbench bench;
  const int64_t rows = 12, cols = 150001;
  const Tensor x = bench.allocator.zeros(DType::f32, {rows, cols}), sums = bench.empty(DType::f32, {cols});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = float(i % 1009);
  reference_kernels().sum_rows(bench.stream, sums, x, false);
  expect_everywhere({{"sums", sums}},
                    [&](Stream& stream, const std::vector<Tensor>& out) { cpu::sum_rows(stream, out[0], x, false); });
}

}  // namespace
}  // namespace weft
