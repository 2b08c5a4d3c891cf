// Products of matrices whose rows do not begin at multiples of 16 bytes, as those of a vocabulary of odd size do not:
// equal to the reference in all three forms.
#include "weft/kernels/cuda/ragged_gemm.h"
#include "kernels/workbench.h"

namespace weft {
namespace {

struct RaggedCase {
  const char* name;
  DType dtype, y;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate = false;
};
class CudaRaggedGemmTest : public testing::TestWithParam<RaggedCase> {};
INSTANTIATE_TEST_SUITE_P(
    Forms, CudaRaggedGemmTest,
    testing::Values(RaggedCase{"logits", DType::bf16, DType::bf16, 520, 513, 264, false, true},
                    RaggedCase{"gradient_of_inputs", DType::bf16, DType::bf16, 520, 264, 515, false, false},
                    RaggedCase{"gradient_of_weights", DType::bf16, DType::f32, 519, 264, 520, true, false},
                    RaggedCase{"added_to", DType::bf16, DType::f32, 519, 264, 520, true, false, true},
                    RaggedCase{"of_f32", DType::f32, DType::f32, 520, 264, 515, false, false},
                    RaggedCase{"rows_of_b", DType::f16, DType::f16, 520, 264, 517, false, true}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaRaggedGemmTest, EqualsReference) {
  const RaggedCase& c = GetParam();
  Workbench bench(1, Device::cuda), host;
  const Tensor a = bench.random(c.dtype, c.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k}, "a");
  const Tensor b = bench.random(c.dtype, c.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n}, "b");
  const Tensor before = bench.random(c.y, {c.m, c.n}, "y"), y = bench.on_device(before);
  cuda_kernels().matmul(bench.stream, {.y = y,
                                       .a = bench.on_device(a),
                                       .b = bench.on_device(b),
                                       .transpose_a = c.transpose_a,
                                       .transpose_b = c.transpose_b,
                                       .accumulate = c.accumulate});
  const auto wide = [&](const Tensor& t) { return host.of(DType::f64, t.shape(), bench.values(t)); };
  const Tensor want = wide(before);
  reference_kernels().matmul(host.stream, {.y = want,
                                           .a = wide(a),
                                           .b = wide(b),
                                           .transpose_a = c.transpose_a,
                                           .transpose_b = c.transpose_b,
                                           .accumulate = c.accumulate});
  const std::vector<double> is = bench.values(y), should = host.values(want);
  double largest = 0;
  for (const double x : should) largest = std::max(largest, std::abs(x));
  const double rounding = c.y == DType::f32 ? 0 : 0x1p-8;
  for (size_t i = 0; i < is.size(); ++i)
    ASSERT_NEAR(is[i], should[i], 1e-5 * largest + rounding * std::abs(should[i])) << i;
}

TEST(RaggedGemm, LargeMatricesOfOddRowsAre) {
  EXPECT_TRUE(cuda::is_ragged(DType::bf16, 4096, 50257, 1600));
  EXPECT_FALSE(cuda::is_ragged(DType::bf16, 4096, 50264, 1600));
  EXPECT_TRUE(cuda::is_ragged(DType::bf16, 4096, 50260, 1600));
  EXPECT_FALSE(cuda::is_ragged(DType::f32, 4096, 50260, 1600));
  EXPECT_FALSE(cuda::is_ragged(DType::bf16, 8, 33, 1600));
  EXPECT_FALSE(cuda::is_ragged(DType::bf16, 4096, 50257, 16));
}

}  // namespace
}  // namespace weft
