// Grouped products of rows that name their groups, on tables to which tensors are memory of the host: each row is
// what matmul makes of it, and groups that are none are refused.
#include "weft/kernels/grouped_matmul.h"

#include "kernels/workbench.h"

namespace weft {
namespace {

class NamedGroupsTest : public testing::TestWithParam<const Kernels* (*)()> {
 protected:
  Workbench bench_;
  const Kernels& k_ = *GetParam()();

  Tensor groups(const std::vector<int32_t>& of_rows) {
    const Tensor t = bench_.empty(DType::i32, {int64_t(of_rows.size())});
    std::copy(of_rows.begin(), of_rows.end(), t.data<int32_t>());
    return t;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, NamedGroupsTest,
                         testing::Values([] { return &reference_kernels(); }, [] { return &cpu_kernels(); }),
                         [](const auto& test) { return std::string(test.param()->name); });

TEST_P(NamedGroupsTest, EachRowIsAProduct) {
  const std::vector<int32_t> of_rows = {3, 0, 3, 1};
  const int64_t rows = int64_t(of_rows.size()), n = 12, k = 40;
  const Tensor a = bench_.random(DType::f32, {rows, k}, "a"), b = bench_.random(DType::f32, {4, n, k}, "b");
  const GroupedMatmulArgs all{
      .y = bench_.empty(DType::f32, {rows, n}), .a = a, .b = b, .transpose_b = true, .groups = groups(of_rows)};
  k_.grouped_matmuls(bench_.stream, {&all, 1});
  for (int64_t row = 0; row < rows; ++row) {
    const Tensor y = bench_.empty(DType::f32, {1, n});
    k_.matmul(bench_.stream, {.y = y,
                              .a = a.slice_rows(row, 1),
                              .b = b.slice_rows(of_rows[size_t(row)], 1).reshape({n, k}),
                              .transpose_b = true});
    EXPECT_EQ(bench_.values(all.y.slice_rows(row, 1)), bench_.values(y)) << "row " << row;
  }
}

TEST_P(NamedGroupsTest, WhatNamesNoGroupsIsRefused) {
  const int64_t starts[] = {0, 2};
  GroupedMatmulArgs args{.y = bench_.empty(DType::f32, {2, 3}),
                         .a = bench_.random(DType::f32, {2, 4}, "a"),
                         .b = bench_.random(DType::f32, {1, 3, 4}, "b"),
                         .transpose_b = true,
                         .groups = groups({0, 0, 0})};
  const auto multiply = [&] { k_.grouped_matmuls(bench_.stream, {&args, 1}); };
  EXPECT_THROW(multiply(), Error);
  args.groups = bench_.empty(DType::i64, {2});
  EXPECT_THROW(multiply(), Error);
  args.groups = groups({0, 1});
  EXPECT_THROW(multiply(), Error) << "there is one matrix";
  args.groups = groups({0, 0}), args.starts = starts;
  EXPECT_THROW(multiply(), Error) << "one or the other";
  args.starts = {};
  EXPECT_NO_THROW(multiply());
}

}  // namespace
}  // namespace weft
