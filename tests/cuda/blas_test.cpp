// Blas: a product gets another algorithm when it has been used often enough and another is faster, and keeps its
// bits; whatever goes wrong with a trial, the product is made.
#include "weft/kernels/cuda/blas.h"

#include "cuda/emulation.h"
#include "kernels/workbench.h"

namespace weft {
namespace {

using cuda::Gemm, cuda::GemmActivation;

struct Form {
  const char* name;
  DType type, y_type;
  bool transpose_a = false, transpose_b = false, accumulate = false, has_bias = false;
  GemmActivation activation = GemmActivation::none;
  int64_t gap = 0;  // between the rows of y
};
constexpr Form kForms[] = {
    {"of_f32", DType::f32, DType::f32},
    {"of_bf16_transposed_b", DType::bf16, DType::bf16, false, true},
    {"of_f16_transposed_a_into_f32", DType::f16, DType::f32, true},
    {"added_to", DType::bf16, DType::f32, true, false, true},
    {"with_bias", DType::bf16, DType::bf16, false, true, false, true},
    {"with_gelu", DType::bf16, DType::bf16, false, true, false, true, GemmActivation::gelu},
    {"with_slope_of_gelu", DType::bf16, DType::bf16, false, false, false, false, GemmActivation::gelu_backward},
    {"columns_of_a_wider_y", DType::f16, DType::f16, false, true, false, false, GemmActivation::none, 8}};

// A product's operands, and the memory that it writes.
struct Operands {
  Operands(Workbench& bench, const Form& f) : bench_(bench) {
    constexpr int64_t m = 40, n = 48, k = 264;
    const auto random = [&](DType type, Shape shape, std::string_view name) {
      return bench.on_device(bench.random(type, shape, name));
    };
    a_ = random(f.type, {m * k}, "a"), b_ = random(f.type, {k * n}, "b");
    if (f.has_bias) bias_ = random(f.y_type, {n}, "bias");
    if (f.activation != GemmActivation::none) pre_ = random(f.y_type, {m, n}, "pre");
    before_ = bench.random(f.y_type, {m, n + f.gap}, "y");
    gemm = {.type = f.type,
            .y_type = f.y_type,
            .m = m,
            .n = n,
            .k = k,
            .transpose_a = f.transpose_a,
            .transpose_b = f.transpose_b,
            .accumulate = f.accumulate,
            .y = nullptr,
            .y_stride = n + f.gap,
            .a = a_.raw(),
            .b = b_.raw(),
            .bias = bias_ ? bias_.raw() : nullptr,
            .activation = f.activation,
            .pre = pre_ ? pre_.raw() : nullptr};
  }
  std::vector<double> multiply_by(cuda::Blas& blas) {
    const Tensor y = bench_.on_device(before_);
    gemm.y = y.raw();
    blas.multiply(bench_.stream, gemm);
    return bench_.values(y);
  }

  Gemm gemm;

 private:
  Workbench& bench_;
  Tensor a_, b_, bias_, pre_;
  Tensor before_;  // on the host
};

class CudaBlasTest : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, CudaBlasTest, testing::ValuesIn(kForms),
                         [](const auto& test) { return std::string(test.param.name); });

constexpr cuda::TrialTerms kSoon{.least_products = 1, .least_results = 1, .uses = 2};

TEST_P(CudaBlasTest, ATrialKeepsTheBits) {
  const EmulatorSetting slow("WEFT_EMULATED_BLAS", "slow");
  Workbench bench(1, Device::cuda);
  Operands product(bench, GetParam());
  cuda::Blas blas(kSoon);
  const std::vector<double> first = product.multiply_by(blas);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(product.multiply_by(blas), first) << i;
}

// What makes the product in every second of its uses; in the others it may be tried.
std::vector<int> algorithms_of(cuda::Blas& blas, Operands& product, int times) {
  std::vector<int> all;
  for (int i = 0; i < times; ++i) {
    product.multiply_by(blas);
    std::array<int64_t, 3> before{};
    for (int a = 0; a < 3; ++a) before[size_t(a)] = num_products(a);
    product.multiply_by(blas);
    for (int a = 0; a < 3; ++a)
      if (num_products(a) != before[size_t(a)]) all.push_back(a);
  }
  return all;
}

TEST_P(CudaBlasTest, TheFastestOfTheSameBitsIsFoundOnce) {
  if (!kIsEmulated) GTEST_SKIP() << "a card does not tell what it uses";
  const EmulatorSetting slow("WEFT_EMULATED_BLAS", "slow");
  Workbench bench(1, Device::cuda);
  Operands product(bench, GetParam());
  cuda::Blas blas(kSoon);
  // Algorithm 2 is faster still, and adds up in another order.
  EXPECT_EQ(algorithms_of(blas, product, 3), (std::vector{0, 1, 1}));
}

TEST(CudaBlasTest, NothingIsTriedThatDoesNotPay) {
  if (!kIsEmulated) GTEST_SKIP() << "a card does not tell what it uses";
  const EmulatorSetting slow("WEFT_EMULATED_BLAS", "slow");
  Workbench bench(1, Device::cuda);
  Operands product(bench, kForms[1]);
  constexpr int64_t kResults = 40 * 48, kProducts = kResults * 264;
  cuda::Blas small({.least_products = kProducts + 264, .least_results = 1, .uses = 0});
  cuda::Blas few({.least_products = 1, .least_results = kResults + 1, .uses = 0});
  cuda::Blas rare({.least_products = 1, .least_results = 1, .uses = 100});
  for (cuda::Blas* blas : {&small, &few, &rare}) EXPECT_EQ(algorithms_of(*blas, product, 2), (std::vector{0, 0}));
  cuda::Blas just_enough({.least_products = kProducts, .least_results = kResults, .uses = 0});
  EXPECT_EQ(algorithms_of(just_enough, product, 1), (std::vector{1}));
}

TEST(CudaBlasTest, WhatDoesNotRunIsNotChosen) {
  if (!kIsEmulated) GTEST_SKIP() << "a card does not tell what it uses";
  const EmulatorSetting broken("WEFT_EMULATED_BLAS", "broken");
  Workbench bench(1, Device::cuda);
  Operands product(bench, kForms[0]);
  cuda::Blas blas(kSoon);
  EXPECT_EQ(algorithms_of(blas, product, 3), (std::vector{0, 0, 0}));
}

TEST(CudaBlasTest, WithoutMemoryForATrialTheFirstStays) {
  if (!kIsEmulated) GTEST_SKIP() << "a card does not tell what it uses";
  const EmulatorSetting slow("WEFT_EMULATED_BLAS", "slow");
  Workbench bench(1, Device::cuda);
  Operands product(bench, kForms[0]);
  Stream& stream = bench.stream;
  const Tensor y = bench.on_device(bench.random(DType::f32, {40, 48}, "y"));
  product.gemm.y = y.raw();
  cuda::Blas blas(kSoon);
  bench.stream.wait();
  const EmulatorSetting full("WEFT_EMULATED_LARGEST_BLOCK", "16384");
  blas.multiply(stream, product.gemm);
  stream.wait();
  const std::vector<double> first = bench.values(y);
  for (int i = 0; i < 4; ++i) {
    stream.queue().clear(y.raw(), y.bytes());
    blas.multiply(stream, product.gemm);
    stream.wait();
    ASSERT_EQ(bench.values(y), first) << i;
  }
  EXPECT_EQ(algorithms_of(blas, product, 1), std::vector{0});
}

TEST(CudaBlasTest, AChoiceWithinAStepThatRepeats) {
  const EmulatorSetting slow("WEFT_EMULATED_BLAS", "slow");
  Workbench bench(1, Device::cuda);
  Operands product(bench, kForms[3]);
  cuda::Blas blas({.least_products = 1, .least_results = 1, .uses = 11});
  const Tensor y = bench.on_device(bench.random(DType::f32, {40, 48}, "y"));
  product.gemm.y = y.raw();
  std::vector<std::vector<double>> sums;
  for (int step = 0; step < 6; ++step) {
    bench.stream.queue().begin_step(1);
    bench.stream.queue().clear(y.raw(), y.bytes());
    for (int i = 0; i < 5; ++i) blas.multiply(bench.stream, product.gemm);
    bench.stream.queue().end_step(false);
    sums.push_back(bench.values(y));
    ASSERT_EQ(sums.back(), sums.front()) << "step " << step;
  }
  EXPECT_GT(std::ranges::count_if(sums.front(), [](double x) { return x != 0; }), 1900);
}

}  // namespace
}  // namespace weft
