// Dropout on the cpu: exactly the elements that the scalar generator keeps, on every instruction set.
#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

struct DropoutCase {
  std::string name;
  int64_t count;
  DType dtype;
  DropoutKey key;
};

class CpuDropoutTest : public testing::TestWithParam<DropoutCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CpuDropoutTest,
    testing::Values(DropoutCase{"none", 0, DType::f32, {0.1f, 1, 2, 0}},
                    DropoutCase{"one", 1, DType::bf16, {0.5f, 1, 2, 0}},
                    DropoutCase{"seven", 7, DType::f16, {0.1f, 1, 2, 3}},
                    DropoutCase{"tail", 4099, DType::f32, {0.3f, 0x123456789abcdefu, 0xfedcba9876543210u, 77}},
                    DropoutCase{"across_32_bits", 1000, DType::bf16, {0.1f, 5, 6, 0xffffff00u}},
                    DropoutCase{"above_32_bits", 1000, DType::f32, {0.9f, ~uint64_t(0), ~uint64_t(0), 0x1234567890u}},
                    DropoutCase{"chunks", 200000, DType::bf16, {0.2f, 9, 1, 0}},
                    DropoutCase{"chunks_of_f16", 200000, DType::f16, {0.2f, 9, 1, 0}},
                    DropoutCase{"tiny_p", 100000, DType::f32, {1e-7f, 9, 1, 0}},
                    DropoutCase{"nearly_all", 100000, DType::f32, {0.99999994f, 9, 1, 0}},
                    DropoutCase{"off", 1000, DType::f32, {0.0f, 9, 1, 0}}),
    [](const auto& test) { return test.param.name; });

TEST_P(CpuDropoutTest, KeepsWhatTheGeneratorSays) {
  const auto& [name, count, dtype, key] = GetParam();
  Workbench bench;
  const Tensor x = bench.random(dtype, {count}, "x"), y = bench.empty(dtype, {count});
  reference_kernels().dropout(bench.stream, y, x, key);
  const double tolerance = rounding_of(dtype);
  expect_everywhere(
      {{"y", y, tolerance}, {"in place", y, tolerance, x}}, [&](Stream& stream, const std::vector<Tensor>& out) {
        cpu::dropout(stream, out[0], x, key);
        cpu::dropout(stream, out[1], out[1], key);
        for (int64_t i = 0; i < count; i += 1 + count / 5000) {
          const bool kept = to_uniform(philox(key.seed, key.first + uint64_t(i), key.stream)[0]) >= key.p;
          const bool is_zero = bench.values(out[0].slice_flat(i, {1}))[0] == 0;
          ASSERT_EQ(is_zero, !kept) << name << ", element " << i;
        }
      });
}

TEST(CpuDropout, DropsInfinities) {
  Workbench bench;
  const Tensor x = bench.of(DType::f32, {64}, std::vector<double>(64, INFINITY)), y = bench.empty(DType::f32, {64});
  cpu::dropout(bench.stream, y, x, {0.5f, 1, 1, 0});
  for (const double value : bench.values(y)) EXPECT_TRUE(value == 0 || value == INFINITY) << value;
}

}  // namespace
}  // namespace weft
