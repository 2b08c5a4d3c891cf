// Dense products of few rows on a device: those of one a together have the bits of each by itself, and a row has the
// bits it has alone.
#include "cuda/emulation.h"
#include "kernels/workbench.h"

namespace weft {
namespace {

struct FewRowsCase {
  const char* name;
  DType dtype;
  int64_t rows, k;
  std::vector<int64_t> columns;
  bool is_gated = false;
};
class CudaMatmulFewTest : public testing::TestWithParam<FewRowsCase> {
 protected:
  Workbench bench_{1, Device::cuda};
  const Kernels& k_ = cuda_kernels();

  Tensor weight(size_t i) {
    return bench_.on_device(
        bench_.random(GetParam().dtype, {GetParam().columns[i], GetParam().k}, fmt::format("weight {}", i)));
  }
  // Products of `a`, and the results of them: y of each, and what a gate made.
  std::vector<std::vector<double>> results(const Tensor& a, bool together) {
    const FewRowsCase& c = GetParam();
    std::vector<MatmulArgs> products;
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < c.columns.size(); ++i) {
      MatmulArgs args{
          .y = bench_.empty(c.dtype, {a.dim(0), c.columns[i]}), .a = a, .b = weight(i), .transpose_b = true};
      if (c.is_gated && i == 1)
        args.epilogue = {.kind = Epilogue::Kind::gated,
                         .f = Activation::silu,
                         .act = bench_.empty(c.dtype, args.y.shape()),
                         .gate = products[0].y};
      products.push_back(args);
      outputs.push_back(args.y);
      if (args.epilogue.act) outputs.push_back(args.epilogue.act);
    }
    if (together)
      k_.matmuls_of_one_a(bench_.stream, products);
    else
      for (const MatmulArgs& args : products) k_.matmul(bench_.stream, args);
    std::vector<std::vector<double>> all;
    for (const Tensor& t : outputs) all.push_back(bench_.values(t));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmulFewTest,
                         testing::Values(FewRowsCase{"one_row", DType::bf16, 1, 256, {37}},
                                         FewRowsCase{"query_key_value", DType::bf16, 2, 520, {48, 6, 11}},
                                         FewRowsCase{"gate_and_up", DType::f16, 3, 1040, {29, 29}, true},
                                         FewRowsCase{"gate_up_and_more", DType::bf16, 8, 72, {17, 17, 5}, true},
                                         FewRowsCase{"rows_that_are_many", DType::bf16, 9, 64, {12, 12}, true},
                                         FewRowsCase{"odd_rows", DType::bf16, 4, 36, {12, 3}}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaMatmulFewTest, TogetherHaveTheBitsOfEach) {
  const Tensor a = bench_.on_device(bench_.random(GetParam().dtype, {GetParam().rows, GetParam().k}, "a"));
  EXPECT_EQ(results(a, true), results(a, false));
}

TEST_P(CudaMatmulFewTest, EqualTheReference) {
  const FewRowsCase& c = GetParam();
  const Tensor a = bench_.random(c.dtype, {c.rows, c.k}, "a");
  const auto got = results(bench_.on_device(a), true);
  Workbench host;
  for (size_t i = 0; i < (c.is_gated ? 1 : c.columns.size()); ++i) {
    const Tensor y = host.empty(DType::f64, {c.rows, c.columns[i]});
    const auto wide = [&](const Tensor& t) { return host.of(DType::f64, t.shape(), bench_.values(t)); };
    reference_kernels().matmul(host.stream, {.y = y, .a = wide(a), .b = wide(weight(i)), .transpose_b = true});
    const std::vector<double> want = host.values(y);
    for (size_t j = 0; j < want.size(); ++j) ASSERT_NEAR(got[i][j], want[j], 0.01 + 0x1p-8 * std::abs(want[j]));
  }
}

TEST_P(CudaMatmulFewTest, DevicesThatBeginKernelsOneByOneGiveTheSame) {
  if (!has_capability(80)) GTEST_SKIP() << "another card";
  const Tensor a = bench_.on_device(bench_.random(GetParam().dtype, {GetParam().rows, GetParam().k}, "a"));
  const auto early = results(a, true);
  const EmulatedCapability one_by_one(80);
  EXPECT_EQ(results(a, true), early);
}

TEST_P(CudaMatmulFewTest, ARowHasTheBitsOfItAlone) {
  const FewRowsCase& c = GetParam();
  if (c.rows > 8) GTEST_SKIP() << "cuBLASLt's rows are as it likes";
  const Tensor a = bench_.on_device(bench_.random(c.dtype, {c.rows, c.k}, "a"));
  const auto all = results(a, true);
  for (int64_t row = 0; row < c.rows && c.k % 8 == 0; ++row) {
    const auto one = results(a.slice_rows(row, 1), true);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(one[i], std::vector<double>(all[i].begin() + row * int64_t(one[i].size()),
                                            all[i].begin() + (row + 1) * int64_t(one[i].size())))
          << i;
  }
}

}  // namespace
}  // namespace weft
