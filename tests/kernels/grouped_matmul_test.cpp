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

TEST_P(NamedGroupsTest, EachRunIsAProduct) {
  const int64_t starts[] = {0, 2, 2, 5};
  const Tensor runs = bench_.empty(DType::i32, {5, 3});
  const std::vector<int32_t> text = {0, 2, 0, 2, 1, 2, 3, 2, 2, 0, 0, 0, 9, 9, 9};  // nothing after one of no rows
  std::copy(text.begin(), text.end(), runs.data<int32_t>());
  GroupedMatmulArgs args{.y = bench_.empty(DType::f32, {5, 12}),
                         .a = bench_.random(DType::f32, {5, 40}, "a"),
                         .b = bench_.random(DType::f32, {3, 12, 40}, "b"),
                         .transpose_b = true,
                         .starts = starts};
  k_.grouped_matmuls(bench_.stream, {&args, 1});
  const std::vector<double> want = bench_.values(args.y);
  args.y = bench_.empty(DType::f32, {5, 12}), args.starts = {}, args.runs = runs;
  k_.grouped_matmuls(bench_.stream, {&args, 1});
  const std::vector<double> got = bench_.values(args.y);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-4) << i;
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

// Gradients of each group by itself.
TEST_P(NamedGroupsTest, GradientsAreProductsOfRows) {
  const int64_t starts[] = {0, 3, 3, 4};
  const Tensor a = bench_.random(DType::f32, {4, 6}, "a"), b = bench_.random(DType::f32, {4, 5}, "b");
  for (const bool accumulate : {false, true}) {
    const Tensor y = bench_.random(DType::f32, {3, 6, 5}, "y");
    const std::vector<double> before = bench_.values(y), x = bench_.values(a), z = bench_.values(b);
    k_.grouped_gradients(bench_.stream, {.y = y, .a = a, .b = b, .accumulate = accumulate, .starts = starts});
    const std::vector<double> got = bench_.values(y);
    for (size_t i = 0; i < got.size(); ++i) {
      double want = accumulate ? before[i] : 0;
      for (auto row = size_t(starts[i / 30]); row < size_t(starts[i / 30 + 1]); ++row)
        want += x[row * 6 + i / 5 % 6] * z[row * 5 + i % 5];
      EXPECT_NEAR(got[i], want, 1e-5) << i;
    }
  }
}

TEST_P(NamedGroupsTest, CopiesAreOrderedByGroup) {
  const Tensor chosen = groups({2, 0, 3, 2, 0, 2}).reshape({3, 2});
  const GroupOrderArgs order{.at = bench_.empty(DType::i32, {3, 2}),
                             .tokens = bench_.empty(DType::i32, {6}),
                             .runs = bench_.empty(DType::i32, {6, 3}),
                             .chosen = chosen,
                             .groups = 4};
  k_.order_by_group(bench_.stream, order);
  const auto numbers = [](const Tensor& t) {
    return std::vector<int32_t>(t.data<int32_t>(), t.data<int32_t>() + t.numel());
  };
  EXPECT_EQ(numbers(order.at), (std::vector<int32_t>{2, 0, 5, 3, 1, 4}));
  EXPECT_EQ(numbers(order.tokens), (std::vector<int32_t>{0, 2, 0, 1, 2, 1}));
  EXPECT_EQ(numbers(order.runs), (std::vector<int32_t>{0, 2, 0, 2, 3, 2, 5, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  chosen.data<int32_t>()[4] = 4;
  EXPECT_THROW(k_.order_by_group(bench_.stream, order), Error);
}

}  // namespace
}  // namespace weft
