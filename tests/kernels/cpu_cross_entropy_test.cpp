// Cross entropy on the cpu: losses and gradients, against the reference, also for logits without end.
#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

class CpuCrossEntropyTest : public testing::TestWithParam<std::tuple<int64_t, int64_t, DType>> {};
INSTANTIATE_TEST_SUITE_P(All, CpuCrossEntropyTest,
                         testing::Combine(testing::Values(0, 1, 17), testing::Values(1, 7, 63, 64, 65, 1000, 4099),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         [](const auto& test) {
                           return fmt::format("{}x{}_{}", std::get<0>(test.param), std::get<1>(test.param),
                                              name_of(std::get<2>(test.param)));
                         });

std::vector<int32_t> some_targets(int64_t rows, int64_t vocab) {
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < rows; ++t) targets.push_back(t % 5 == 3 ? -1 : int32_t(philox(8, uint64_t(t))[0] % vocab));
  return targets;
}

TEST_P(CpuCrossEntropyTest, EqualsReference) {
  const auto [rows, vocab, dtype] = GetParam();
  Workbench bench;
  const Tensor logits = bench.random(dtype, {rows, vocab}, "logits");
  reference_kernels().scale(bench.stream, logits, logits, 4);
  const std::vector<int32_t> targets = some_targets(rows, vocab);
  const Tensor losses = bench.empty(DType::f32, {rows}), gradient = bench.copy(logits);
  reference_kernels().cross_entropy(bench.stream, losses, gradient, targets.data(), 0.25f);
  const double tolerance = dtype == DType::f32 ? 1e-6 : 1e-3;
  expect_everywhere({{"losses", losses, 1e-6}, {"gradient", gradient, tolerance, logits}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::cross_entropy(stream, out[0], out[1], targets.data(), 0.25f);
                    });
  expect_everywhere({{"losses alone", losses, 1e-6}, {"logits as they were", logits, 0, logits}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::cross_entropy(stream, out[0], out[1], targets.data(), 0);
                    });
}

TEST(CpuCrossEntropy, TakesALargeVocabulary) {
  Workbench bench;
  const int64_t vocab = 150001;
  const Tensor logits = bench.random(DType::f32, {2, vocab}, "logits"), losses = bench.empty(DType::f32, {2});
  const std::vector<int32_t> targets = {150000, 0};
  const Tensor gradient = bench.copy(logits);
  reference_kernels().cross_entropy(bench.stream, losses, gradient, targets.data(), 1);
  expect_everywhere({{"losses", losses, 1e-6}, {"gradient", gradient, 1e-9, logits}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::cross_entropy(stream, out[0], out[1], targets.data(), 1);
                    });
}

struct ExtremeCase {
  std::string name;
  double low, high;  // all logits but one, and that one
  int32_t target;    // the high one is number 2500 of 5000
  double loss;
};

class CpuCrossEntropyExtremeTest : public testing::TestWithParam<ExtremeCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CpuCrossEntropyExtremeTest,
    testing::Values(ExtremeCase{"large", 1e30, 1e30, 7, std::log(5000)},
                    ExtremeCase{"far_apart", -1e38, 1e38, 2500, 0}, ExtremeCase{"masked", -kInfinity, 3, 2500, 0},
                    ExtremeCase{"masked_target", -kInfinity, 3, 7, kInfinity},
                    ExtremeCase{"close_at_ten_thousand", 10000, 10001, 2500, std::log(1 + 4999 * std::exp(-1.0))},
                    ExtremeCase{"sure", 0, 100, 2500, 0}, ExtremeCase{"nan", 0, NAN, 7, NAN},
                    ExtremeCase{"infinite", 0, kInfinity, 7, NAN}),
    [](const auto& test) { return test.param.name; });

TEST_P(CpuCrossEntropyExtremeTest, GivesTheRightLoss) {
  const auto& [name, low, high, target, loss] = GetParam();
  Workbench bench;
  std::vector<double> row(5000, low);
  row[2500] = high;
  const Tensor losses = bench.of(DType::f32, {1}, {loss});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (dtype == DType::bf16 && name == "close_at_ten_thousand") continue;
    const Tensor logits = bench.of(dtype, {1, 5000}, row);
    expect_everywhere({{"loss", losses, 2e-6}}, [&](Stream& stream, const std::vector<Tensor>& out) {
      const Tensor gradient = bench.copy(logits);
      cpu::cross_entropy(stream, out[0], gradient, &target, 1);
      double sum = 0;
      for (const double value : bench.values(gradient)) sum += value;
      if (std::isnan(loss))
        EXPECT_TRUE(std::isnan(sum)) << name << ": a loss that is no number must not have a gradient that is one";
      else
        EXPECT_NEAR(sum, 0, dtype == DType::f32 ? 1e-4 : 1e-2) << name;
    });
  }
}

}  // namespace
}  // namespace weft
