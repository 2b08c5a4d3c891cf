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

// Rows [starts[g], starts[g + 1]) are group g's.
struct GroupsCase {
  const char* name;
  DType dtype;
  std::vector<int64_t> starts;
};
class CudaGroupedMatmulTest : public testing::TestWithParam<GroupsCase> {};
INSTANTIATE_TEST_SUITE_P(All, CudaGroupedMatmulTest,
                         testing::Values(GroupsCase{"one_row_of_each", DType::bf16, {0, 1, 2, 3, 4}},
                                         GroupsCase{"a_group_of_all", DType::f16, {0, 0, 2, 2}},
                                         GroupsCase{"few_of_most", DType::bf16, {0, 0, 3, 8, 8, 9, 16}},
                                         GroupsCase{"more_than_a_block_takes", DType::f16, {0, 25, 26, 26, 35}}),
                         [](const auto& test) { return std::string(test.param.name); });

// With the bits of products of at most eight rows, whatever else a group has.
TEST_P(CudaGroupedMatmulTest, HasTheBitsOfEachRowAlone) {
  const GroupsCase& c = GetParam();
  constexpr int64_t kN = 27, kK = 520;
  const auto rows = c.starts.back(), groups = int64_t(c.starts.size()) - 1;
  Workbench bench(1, Device::cuda);
  const Kernels& k = cuda_kernels();
  const auto stack = [&](const char* name) { return bench.on_device(bench.random(c.dtype, {groups, kN, kK}, name)); };
  const Tensor a = bench.on_device(bench.random(c.dtype, {rows, kK}, "a")), gates = stack("gate"), ups = stack("up");
  GroupedMatmulArgs gate{
      .y = bench.empty(c.dtype, {rows, kN}), .a = a, .b = gates, .transpose_b = true, .starts = c.starts};
  GroupedMatmulArgs up = gate;
  up.y = bench.empty(c.dtype, {rows, kN}), up.b = ups;
  up.epilogue = {
      .kind = Epilogue::Kind::gated, .f = Activation::silu, .act = bench.empty(c.dtype, {rows, kN}), .gate = gate.y};
  k.grouped_matmuls(bench.stream, std::array{gate, up});
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t row = c.starts[size_t(g)]; row < c.starts[size_t(g) + 1]; ++row) {
      const auto one = [&](const Tensor& b) {
        return MatmulArgs{.y = bench.empty(c.dtype, {1, kN}),
                          .a = a.slice_rows(row, 1),
                          .b = b.slice_rows(g, 1).reshape({kN, kK}),
                          .transpose_b = true};
      };
      const MatmulArgs own_gate = one(gates);
      MatmulArgs own_up = one(ups);
      own_up.epilogue = {.kind = Epilogue::Kind::gated,
                         .f = Activation::silu,
                         .act = bench.empty(c.dtype, {1, kN}),
                         .gate = own_gate.y};
      k.matmuls_of_one_a(bench.stream, std::array{own_gate, own_up});
      for (const auto& [all, own] : {std::pair{gate.y, own_gate.y}, std::pair{up.y, own_up.y},
                                     std::pair{up.epilogue.act, own_up.epilogue.act}})
        ASSERT_EQ(bench.values(all.slice_rows(row, 1)), bench.values(own)) << "row " << row << " of group " << g;
    }
  }
}

// The device reads the groups; what its own kernels do not multiply, the host reads them for.
TEST(CudaGroupedMatmulTest, RowsMayNameTheirGroups) {
  const std::vector<int32_t> of_rows = {4, 0, 4, 2, 1};
  for (const DType type : {DType::bf16, DType::f32}) {
    constexpr int64_t kN = 19, kK = 264;
    const auto rows = int64_t(of_rows.size());
    Workbench bench(1, Device::cuda);
    const Tensor groups = bench.host.empty(DType::i32, {rows});
    std::copy(of_rows.begin(), of_rows.end(), groups.data<int32_t>());
    const Tensor a = bench.on_device(bench.random(type, {rows, kK}, "a")),
                 b = bench.on_device(bench.random(type, {5, kN, kK}, "b"));
    const GroupedMatmulArgs all{
        .y = bench.empty(type, {rows, kN}), .a = a, .b = b, .transpose_b = true, .groups = bench.on_device(groups)};
    cuda_kernels().grouped_matmuls(bench.stream, {&all, 1});
    for (int64_t row = 0; row < rows; ++row) {
      const Tensor y = bench.empty(type, {1, kN});
      cuda_kernels().matmul(bench.stream, {.y = y,
                                           .a = a.slice_rows(row, 1),
                                           .b = b.slice_rows(of_rows[size_t(row)], 1).reshape({kN, kK}),
                                           .transpose_b = true});
      EXPECT_EQ(bench.values(all.y.slice_rows(row, 1)), bench.values(y)) << "row " << row;
    }
  }
}

TEST(CudaGroupedMatmulTest, RefusesWhatAreNoGroups) {
  Workbench bench(1, Device::cuda);
  const auto tensor = [&](Shape shape) { return bench.empty(DType::bf16, shape); };
  const auto multiply = [&](std::vector<int64_t> starts, int64_t groups, int64_t k) {
    const GroupedMatmulArgs args{.y = tensor({6, 8}),
                                 .a = tensor({6, 16}),
                                 .b = tensor({groups, 8, k}),
                                 .transpose_b = true,
                                 .starts = starts};
    cuda_kernels().grouped_matmuls(bench.stream, {&args, 1});
  };
  EXPECT_NO_THROW(multiply({0, 2, 6}, 2, 16));
  EXPECT_THROW(multiply({0, 2, 5}, 2, 16), Error);
  EXPECT_THROW(multiply({1, 2, 6}, 2, 16), Error);
  EXPECT_THROW(multiply({0, 4, 2, 6}, 3, 16), Error);
  EXPECT_THROW(multiply({0, 2, 6}, 3, 16), Error);
  EXPECT_THROW(multiply({0, 2, 6}, 2, 24), Error);
  EXPECT_THROW(multiply({}, 0, 16), Error);
}

}  // namespace
}  // namespace weft
