// Products in fp8: operands on the grid that the 2022 codes and the least fitting power of two make, found here by
// exhaustive search; the three products of a layer; and what is no number.
#include <gtest/gtest.h>

#include <cmath>

#include "support/rank.h"
#include "weft/kernels/kernels.h"
#include "weft/tensor/float8.h"
#include "workbench.h"

namespace weft {
namespace {

constexpr int64_t kGroup = 128;

// Of nothing negative, and ties go to the code that is even.
double nearest_code(double magnitude) {
  int best = 0;
  const auto distance = [&](int code) {
    return std::abs(magnitude - double(float(Float8E4M3::from_bits(uint8_t(code)))));
  };
  for (int code = 1; code <= 0x7e; ++code)
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  return double(float(Float8E4M3::from_bits(uint8_t(best))));
}

// `x` holds `count` numbers, `stride` apart.
void round_line(double* x, int64_t count, int64_t stride) {
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const int64_t end = std::min(count, begin + kGroup);
    double largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::fmax(largest, std::abs(x[i * stride]));
    double scale = 0x1p-117;
    while (scale * 448 < largest) scale *= 2;
    for (int64_t i = begin; i < end; ++i)
      x[i * stride] = std::copysign(nearest_code(std::abs(x[i * stride]) / scale) * scale, x[i * stride]);
  }
}

struct Matrix {
  int64_t rows, cols;
  std::vector<double> at;  // what bf16 holds

  Tensor tensor(Allocator& memory) const {
    const Tensor t = memory.empty(DType::bf16, {rows, cols});
    for (size_t i = 0; i < at.size(); ++i) t.data<BFloat16>()[i] = BFloat16(float(at[i]));
    return t;
  }
  Matrix rounded(bool along_rows) const {
    Matrix m = *this;
    if (along_rows)
      for (int64_t r = 0; r < rows; ++r) round_line(m.at.data() + r * cols, cols, 1);
    else
      for (int64_t c = 0; c < cols; ++c) round_line(m.at.data() + c, rows, cols);
    return m;
  }
};

// Magnitudes over 2^-12 to 2^12 with lines and groups of their own sizes: a scale for all of them would lose many.
Matrix random_matrix(const char* name, int64_t rows, int64_t cols) {
  Matrix m{rows, cols, {}};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const double size = std::exp2(double((r / kGroup * 5 + r * 3 + c / kGroup * 7) % 25 - 12));
      const double value = size * philox_normal(7, name_hash(name), uint64_t(r * cols + c));
      m.at.push_back(double(float(BFloat16(float(value)))));
    }
  return m;
}

Matrix identity(int64_t n) {
  Matrix m{n, n, std::vector<double>(size_t(n * n))};
  for (int64_t i = 0; i < n; ++i) m.at[size_t(i * n + i)] = 1;
  return m;
}

struct ProductForm {
  const char* name;
  bool transpose_a, transpose_b;
};
// y = x wT, dx = dy w, dw = dyT x.
constexpr ProductForm kProductForms[] = {
    {"forward", false, true}, {"input_gradient", false, false}, {"weight_gradient", true, false}};

class Float8ProductTest : public testing::TestWithParam<std::tuple<ProductForm, const Kernels*>> {
 protected:
  ProductForm c() const { return std::get<0>(GetParam()); }
  bool a_runs_along_rows() const { return !c().transpose_a; }
  bool b_runs_along_rows() const { return c().transpose_b; }
  // y in f32.
  Tensor multiply(const Matrix& a, const Matrix& b, TestRank& rank, bool accumulate = false) {
    Allocator& memory = rank.stream.allocator();
    const Tensor y = memory.empty(DType::f32, {c().transpose_a ? a.cols : a.rows, c().transpose_b ? b.rows : b.cols});
    if (accumulate) std::fill_n(y.data<float>(), y.numel(), 3.0f);
    std::get<1>(GetParam())
        ->matmul(rank.stream, {.y = y,
                               .a = a.tensor(memory),
                               .b = b.tensor(memory),
                               .transpose_a = c().transpose_a,
                               .transpose_b = c().transpose_b,
                               .accumulate = accumulate,
                               .float8 = true});
    return y;
  }
};

// A product with ones on the diagonal, which lie on the grid, shows the other operand as it was rounded.
TEST_P(Float8ProductTest, OperandsLieOnTheGrid) {
  TestRank rank(*std::get<1>(GetParam()));
  for (const int64_t k : {1, 3, 128, 130, 300}) {
    const int64_t n = 37;
    const Matrix a = c().transpose_a ? random_matrix("a", k, n) : random_matrix("a", n, k);
    const Tensor of_a = multiply(a, identity(k), rank);
    const Matrix want_a = a.rounded(a_runs_along_rows());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < k; ++j)
        ASSERT_EQ(double(of_a.data<float>()[i * k + j]), want_a.at[size_t(c().transpose_a ? j * n + i : i * k + j)])
            << k << ": " << i << ", " << j;
    const Matrix b = c().transpose_b ? random_matrix("b", n, k) : random_matrix("b", k, n);
    const Tensor of_b = multiply(identity(k), b, rank);
    const Matrix want_b = b.rounded(b_runs_along_rows());
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < n; ++j)
        ASSERT_EQ(double(of_b.data<float>()[i * n + j]), want_b.at[size_t(c().transpose_b ? j * k + i : i * n + j)])
            << k << ": " << i << ", " << j;
  }
}

TEST_P(Float8ProductTest, ProductsOfRoundedOperands) {
  TestRank rank(*std::get<1>(GetParam()));
  const int64_t m = 45, n = 70;
  for (const int64_t k : {5, 128, 257})
    for (const bool accumulate : {false, true}) {
      const Matrix a = c().transpose_a ? random_matrix("a", k, m) : random_matrix("a", m, k);
      const Matrix b = c().transpose_b ? random_matrix("b", n, k) : random_matrix("b", k, n);
      const Matrix x = a.rounded(a_runs_along_rows()), w = b.rounded(b_runs_along_rows());
      const Tensor y = multiply(a, b, rank, accumulate);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = accumulate ? 3 : 0, size = std::abs(sum);
          for (int64_t l = 0; l < k; ++l) {
            const double term = x.at[size_t(c().transpose_a ? l * m + i : i * k + l)] *
                                w.at[size_t(c().transpose_b ? j * k + l : l * n + j)];
            sum += term, size += std::abs(term);
          }
          ASSERT_NEAR(double(y.data<float>()[i * n + j]), sum, 5e-6 * size) << k << ": " << i << ", " << j;
        }
    }
}

// Zeros, numbers below the smallest normal, the largest; and lines with what is no number, which shows in their
// results.
TEST_P(Float8ProductTest, EdgesOfTheRange) {
  TestRank rank(*std::get<1>(GetParam()));
  const std::vector<double> line = {0.0, 0x1p-133, 0x1p-126, 0x1p-120, 448, 449, 464, 465, -0.0, 0x1p127, 0x1.fp127};
  for (size_t i = 0; i < line.size(); ++i) {
    const auto one = [&](double value) { return multiply({1, 1, {value}}, {1, 1, {1.0}}, rank).data<float>()[0]; };
    Matrix want{1, 1, {double(float(BFloat16(float(line[i]))))}};
    EXPECT_EQ(one(line[i]), float(want.rounded(true).at[0])) << line[i];
  }
  for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
    const int64_t k = 200;
    Matrix a = c().transpose_a ? random_matrix("a", k, 2) : random_matrix("a", 2, k);
    a.at[size_t(c().transpose_a ? 2 * 150 : 150)] = bad;
    const Matrix b = c().transpose_b ? random_matrix("b", 2, k) : random_matrix("b", k, 2);
    for (const bool is_a : {true, false}) {
      const bool turns = c().transpose_a || !c().transpose_b;  // the same numbers as the other operand
      if (!is_a && turns) continue;
      const Tensor y = is_a ? multiply(a, b, rank) : multiply(b, a, rank);
      EXPECT_TRUE(std::isnan(y.data<float>()[0]) && std::isnan(y.data<float>()[is_a ? 1 : 2])) << bad;
      EXPECT_TRUE(std::isfinite(y.data<float>()[is_a ? 2 : 1]) && std::isfinite(y.data<float>()[3])) << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Float8ProductTest,
                         testing::Combine(testing::ValuesIn(kProductForms),
                                          testing::Values(&cpu_kernels(), &reference_kernels())),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<1>(test.param)->name, std::get<0>(test.param).name);
                         });

TEST(Float8ProductTest, TakesPlainOperandsOfBf16) {
  TestRank rank(cpu_kernels());
  Allocator& memory = rank.stream.allocator();
  const auto args = [&](DType type) {
    const Tensor x = memory.empty(type, {4, 4});
    rank.context.kernels.fill(rank.stream, x, 1);
    return MatmulArgs{.y = memory.empty(DType::f32, {4, 4}), .a = x, .b = x, .float8 = true};
  };
  MatmulArgs good = args(DType::bf16);
  EXPECT_NO_THROW(cpu_kernels().matmul(rank.stream, good));
  EXPECT_THROW(cpu_kernels().matmul(rank.stream, args(DType::f32)), Error);
  good.packed_b = good.b;
  EXPECT_THROW(cpu_kernels().matmul(rank.stream, good), Error);
}

}  // namespace
}  // namespace weft
