// The cache of algorithms keeps one to a kind of product and drops the least recently used; cuBLAS's view of a
// product gives what row-major loops give.
#include "weft/kernels/cuda/algorithm_cache.h"

#include <gtest/gtest.h>

#include "weft/base/philox.h"
#include "weft/kernels/cuda/column_major.h"

namespace weft::cuda {
namespace {

alignas(64) std::byte memory[256];

Gemm product() {
  return {.type = DType::bf16,
          .y_type = DType::f32,
          .m = 3,
          .n = 5,
          .k = 7,
          .y = memory,
          .y_stride = 5,
          .a = memory + 64,
          .b = memory + 128};
}

struct Change {
  const char* name;
  void (*apply)(Gemm&);
};
class AlgorithmKeyTest : public testing::TestWithParam<Change> {};
INSTANTIATE_TEST_SUITE_P(Kinds, AlgorithmKeyTest,
                         testing::Values(Change{"m", [](Gemm& g) { g.m = 4; }}, Change{"n", [](Gemm& g) { g.n = 4; }},
                                         Change{"k", [](Gemm& g) { g.k = 4; }},
                                         Change{"y_stride", [](Gemm& g) { g.y_stride = 6; }},
                                         Change{"a_stride", [](Gemm& g) { g.a_stride = 8; }},
                                         Change{"type", [](Gemm& g) { g.type = DType::f16; }},
                                         Change{"y_type", [](Gemm& g) { g.y_type = DType::bf16; }},
                                         Change{"transpose_a", [](Gemm& g) { g.transpose_a = true; }},
                                         Change{"transpose_b", [](Gemm& g) { g.transpose_b = true; }},
                                         Change{"rounds_f32", [](Gemm& g) { g.rounds_f32 = true; }},
                                         Change{"bias", [](Gemm& g) { g.bias = memory; }},
                                         Change{"activation", [](Gemm& g) { g.activation = GemmActivation::gelu; }},
                                         Change{"scales", [](Gemm& g) { g.scales = CodeScales::one; }},
                                         Change{"scales_of_blocks", [](Gemm& g) { g.scales = CodeScales::blocks; }},
                                         Change{"y_alignment", [](Gemm& g) { g.y = memory + 4; }},
                                         Change{"a_alignment", [](Gemm& g) { g.a = memory + 2; }},
                                         Change{"b_alignment", [](Gemm& g) { g.b = memory + 8; }}),
                         [](const auto& test) { return test.param.name; });

TEST_P(AlgorithmKeyTest, TellsKindsApart) {
  Gemm other = product();
  GetParam().apply(other);
  AlgorithmCache<int> cache(4);
  EXPECT_EQ(cache.get(AlgorithmKey(product()), [] { return 1; }), 1);
  EXPECT_EQ(cache.get(AlgorithmKey(other), [] { return 2; }), 2);
  EXPECT_EQ(cache.get(AlgorithmKey(product()), [] { return 3; }), 1);
  EXPECT_EQ(cache.get(AlgorithmKey(other), [] { return 4; }), 2);
  EXPECT_NE(AlgorithmKeyHash()(AlgorithmKey(product())), AlgorithmKeyHash()(AlgorithmKey(other)));
}

TEST(AlgorithmCacheTest, PointersOfOneAlignmentAreOneKind) {
  Gemm other = product();
  other.a = memory + 80, other.b = memory, other.y = memory + 32, other.accumulate = true;
  EXPECT_EQ(AlgorithmKey(other), AlgorithmKey(product()));
}

TEST(AlgorithmCacheTest, TheLeastRecentlyUsedGoes) {
  AlgorithmCache<int> cache(3);
  int asked = 0;
  const auto get = [&](int64_t m) {
    Gemm g = product();
    g.m = m;
    return cache.get(AlgorithmKey(g), [&] { return ++asked, int(10 * m); });
  };
  for (const int64_t m : {1, 2, 3, 1, 4}) EXPECT_EQ(get(m), 10 * m);  // 2 is the oldest when 4 comes
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(cache.size(), 3u);
  for (const int64_t m : {1, 3, 4}) EXPECT_EQ(get(m), 10 * m);
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(get(2), 20);
  EXPECT_EQ(asked, 5);
  EXPECT_EQ(cache.size(), 3u);
}

TEST(AlgorithmCacheTest, WhatFailedIsAskedAgain) {
  AlgorithmCache<int> cache(2);
  EXPECT_THROW(cache.get(AlgorithmKey(product()), []() -> int { throw Error("none"); }), Error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.get(AlgorithmKey(product()), [] { return 7; }), 7);
}

TEST(GemmTest, AlignmentIsThatOfTheWidestLoadAtMost) {
  for (const auto& [offset, alignment] : {std::pair{0, 16}, {16, 16}, {1, 1}, {2, 2}, {20, 4}, {40, 8}, {63, 1}})
    EXPECT_EQ(alignment_of(memory + offset), alignment) << offset;
  EXPECT_TRUE(adds_bias(DType::bf16, DType::bf16, memory + 16));
  EXPECT_FALSE(adds_bias(DType::bf16, DType::bf16, memory + 8));
  EXPECT_FALSE(adds_bias(DType::f32, DType::bf16, memory));
}

TEST(AlignmentTest, RowsAreAlignedWhereTheFirstIsAndTheyFillVectors) {
  const auto are_aligned = [](int64_t offset, int64_t width, int64_t bytes) {
    return are_rows_aligned(reinterpret_cast<const float*>(memory + offset), width, bytes);
  };
  EXPECT_TRUE(are_aligned(16, 4, 16));
  EXPECT_FALSE(are_aligned(8, 4, 16));
  EXPECT_FALSE(are_aligned(16, 6, 16));
  EXPECT_TRUE(are_aligned(8, 6, 8));
}

struct Layout {
  const char* name;
  int64_t m, n, k, y_stride;
  bool transpose_a, transpose_b;
  int64_t a_stride = 0;
};
class ColumnMajorTest : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, ColumnMajorTest,
                         testing::Values(Layout{"plain", 3, 5, 7, 5, false, false},
                                         Layout{"transposed_a", 3, 5, 7, 5, true, false},
                                         Layout{"transposed_b", 3, 5, 7, 5, false, true},
                                         Layout{"columns_of_a_wider_y", 4, 3, 2, 11, false, true},
                                         Layout{"columns_of_a_wider_y_transposed_a", 4, 3, 6, 8, true, false},
                                         Layout{"rows_of_a_apart", 3, 5, 7, 5, false, true, 8},
                                         Layout{"rows_of_a_apart_transposed", 3, 5, 7, 5, true, false, 4},
                                         Layout{"a_row", 1, 6, 5, 6, false, true},
                                         Layout{"a_column", 6, 1, 5, 1, false, false}),
                         [](const auto& test) { return test.param.name; });

// BLAS by its definition: y[i + j ld] = sum over l of op(first)(i, l) op(second)(l, j), plus the bias of row i.
void column_major_blas(const ColumnMajorGemm& c, std::vector<float>& y, const std::vector<float>& bias) {
  const auto at = [](const ColumnMajorGemm::Matrix& m, int64_t row, int64_t col) {
    const int64_t r = m.is_transposed ? col : row, s = m.is_transposed ? row : col;
    EXPECT_LT(r, m.rows);
    EXPECT_LT(s, m.cols);
    EXPECT_GE(m.ld, m.rows);
    return static_cast<const float*>(m.data)[r + s * m.ld];
  };
  EXPECT_EQ(c.y.rows, c.m);
  EXPECT_EQ(c.y.cols, c.n);
  for (int64_t j = 0; j < c.n; ++j)
    for (int64_t i = 0; i < c.m; ++i) {
      float sum = bias[size_t(i)];
      for (int64_t l = 0; l < c.k; ++l) sum += at(c.first, i, l) * at(c.second, l, j);
      y[size_t(i + j * c.y.ld)] = sum;
    }
}

TEST_P(ColumnMajorTest, IsTheRowMajorProduct) {
  const Layout& l = GetParam();
  const auto whole_numbers = [](int64_t count, uint64_t seed) {
    std::vector<float> x(size_t(count), 0.0f);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(philox(seed, i)[0] % 15) - 7);
    return x;
  };
  const int64_t a_rows = l.transpose_a ? l.k : l.m, a_cols = l.transpose_a ? l.m : l.k;
  const int64_t a_stride = l.a_stride ? l.a_stride : a_cols;
  const std::vector<float> a = whole_numbers(a_rows * a_stride, 1), b = whole_numbers(l.k * l.n, 2);
  const std::vector<float> bias = whole_numbers(l.n, 3);
  std::vector<float> y(size_t(l.m * l.y_stride), -1000.0f), want = y;
  const Gemm g{.m = l.m,
               .n = l.n,
               .k = l.k,
               .transpose_a = l.transpose_a,
               .transpose_b = l.transpose_b,
               .y = y.data(),
               .y_stride = l.y_stride,
               .a = a.data(),
               .a_stride = l.a_stride,
               .b = b.data()};
  for (int64_t i = 0; i < l.m; ++i)
    for (int64_t j = 0; j < l.n; ++j) {
      float sum = bias[size_t(j)];
      for (int64_t k = 0; k < l.k; ++k)
        sum += a[size_t(l.transpose_a ? k * a_stride + i : i * a_stride + k)] *
               b[size_t(l.transpose_b ? j * l.k + k : k * l.n + j)];
      want[size_t(i * l.y_stride + j)] = sum;
    }
  const ColumnMajorGemm c = column_major(g);
  EXPECT_EQ(c.first.data, g.b);
  EXPECT_EQ(c.second.data, g.a);
  column_major_blas(c, y, bias);
  EXPECT_EQ(y, want);  // what lies between the rows of y too
}

}  // namespace
}  // namespace weft::cuda
