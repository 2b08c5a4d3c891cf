// Merging and accumulating equal the reference on every instruction set, for every dtype and odd sizes.
#include "cpu_everywhere.h"

namespace weft {
namespace {

class CpuPartialResultsTest : public testing::TestWithParam<DType> {
 protected:
  Tensor random(Shape shape, std::string_view name) { return bench.random(DType::f32, shape, name); }
  Workbench bench;
};
INSTANTIATE_TEST_SUITE_P(Types, CpuPartialResultsTest, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(CpuPartialResultsTest, MergeEqualsReference) {
  for (const int64_t dim : {1, 7, 64, 83}) {
    const Shape shape{700, 3, dim}, lse_shape{3, 700};
    const Tensor part = bench.random(GetParam(), shape, "part"), part_lse = random(lse_shape, "part_lse");
    const Tensor acc = random(shape, "acc"), acc_lse = random(lse_shape, "acc_lse");
    for (int64_t i = 0; i < acc_lse.numel(); ++i) {
      if (i % 3 == 0) acc_lse.data<float>()[i] = -HUGE_VALF;
      if (i % 5 == 0) part_lse.data<float>()[i] = -HUGE_VALF;
    }
    const Tensor y = bench.copy(acc), lse = bench.copy(acc_lse);
    reference_kernels().attention_merge(bench.stream, y, lse, part, part_lse);
    expect_everywhere({{"acc", y, 1e-6, acc}, {"acc_lse", lse, 1e-6, acc_lse}},
                      [&](Stream& stream, const std::vector<Tensor>& out) {
                        cpu_kernels().attention_merge(stream, out[0], out[1], part, part_lse);
                      });
  }
}

TEST_P(CpuPartialResultsTest, AccumulateEqualsReference) {
  for (const int64_t count : {0, 1, 31, 70001}) {
    const Tensor x = bench.random(GetParam(), {count}, "x"), sum = random({count}, "sum"), expected = bench.copy(sum);
    reference_kernels().accumulate(bench.stream, expected, x);
    expect_everywhere({{"sum", expected, 1e-7, sum}}, [&](Stream& stream, const std::vector<Tensor>& out) {
      cpu_kernels().accumulate(stream, out[0], x);
    });
  }
}

}  // namespace
}  // namespace weft
