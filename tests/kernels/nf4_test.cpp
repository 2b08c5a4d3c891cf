// NF4: the published codes, scales as the paper's double quantisation has them, and products of what is decoded.
#include "weft/kernels/nf4.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/rank.h"
#include "weft/kernels/kernels.h"

namespace weft {
namespace {

std::vector<float> normal_values(int64_t n, double scale = 0.02) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(scale * philox_normal(3, name_hash("nf4"), i));
  return values;
}

auto reader_of(const std::vector<float>& values) {
  return [&values](int64_t first, std::span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
  };
}

// A quantised matrix, or the part of it that a layout says.
struct Quantized {
  Quantized(const std::vector<float>& values, const nf4::Layout& l, std::span<const float> scales = {}) : layout(l) {
    const auto read = reader_of(values);
    const nf4::Encoder encoder =
        scales.empty() ? nf4::Encoder(l.whole_numel(), read) : nf4::Encoder(l.whole_numel(), scales, read);
    const Tensor blocks = memory.empty(DType::u8, {l.bytes()});
    const Tensor s = memory.empty(DType::f32, {int64_t(encoder.scales().size())});
    std::ranges::copy(encoder.scales(), s.data<float>());
    encoder.encode(l, 0, l.blocks(), read, static_cast<std::byte*>(blocks.raw()));
    matrix = {blocks, s, &layout};
  }
  Quantized(const Quantized&) = delete;
  std::vector<float> decoded() const {
    std::vector<float> out(size_t(layout.rows() * layout.cols()));
    matrix.decode(0, layout.rows(), 0, layout.cols(), out.data());
    return out;
  }

  nf4::Layout layout;
  Allocator memory;
  nf4::Matrix matrix;
};

nf4::Layout whole(int64_t rows, int64_t cols) { return {Shape{rows, cols}, 0, rows, 0, cols}; }

// The quantisation once more, in double and by exhaustive search: which value each element must decode to.
std::vector<double> plain_nf4(const std::vector<float>& x) {
  const auto nearest = [](std::span<const float> table, double v) {
    double best = table[0];
    for (const float t : table)
      if (std::abs(double(t) - v) < std::abs(best - v)) best = double(t);
    return best;
  };
  std::vector<double> largest;
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 64 == 0) largest.push_back(0);
    largest.back() = std::max(largest.back(), std::abs(double(x[i])));
  }
  double offset = 0;
  for (const double v : largest) offset += v / double(largest.size());
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t block = i / 64, group = block / 256 * 256;
    double most = 0;
    for (size_t b = group; b < std::min(group + 256, largest.size()); ++b)
      most = std::max(most, std::abs(largest[b] - offset));
    const double scale = nearest(nf4::kScaleTable, (largest[block] - offset) / most) * most + offset;
    out[i] = nearest(nf4::kTable, double(x[i]) / largest[block]) * scale;
  }
  return out;
}

TEST(Nf4Test, TableIsTheNormalDistributionsQuantiles) {
  // Quantiles of a normal distribution at even steps: 8 from 1/2 up, 7 down, scaled so that the ends are 1. The ends
  // are those of the paper's code: 1/2 (1/32 + 1/30) from 0 and from 1.
  const auto quantile = [](double p) {
    double low = -10, high = 10;
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return low;
  };
  const double end = 0.9677083, most = quantile(end);
  for (int i = 0; i < 8; ++i) {
    const double up = 0.5 + (end - 0.5) * (i + 1) / 8, down = 0.5 + (end - 0.5) * (7 - i) / 7;
    EXPECT_NEAR(double(nf4::kTable[size_t(8 + i)]), quantile(up) / most, 2e-6) << i;
    EXPECT_NEAR(double(nf4::kTable[size_t(i)]), -quantile(down) / most, 2e-6) << i;
  }
  EXPECT_EQ(nf4::kTable[7], 0);
}

TEST(Nf4Test, ScaleCodesAreEightBitsOfADynamicTree) {
  const auto& table = nf4::kScaleTable;
  EXPECT_TRUE(std::ranges::is_sorted(table));
  EXPECT_EQ(table[255], 1);
  EXPECT_NEAR(double(table[254]), 0.99296875, 1e-7);
  EXPECT_NEAR(double(table[0]), -0.99296875, 1e-7);
  EXPECT_NEAR(double(table[127]), 0, 0);
  EXPECT_NEAR(double(table[128]), 5.5e-7, 1e-12);
}

TEST(Nf4Test, DecodesToTheReference) {
  for (const int64_t cols : {64, 100, 1024}) {
    const std::vector<float> x = normal_values(40 * cols);
    const std::vector<float> got = Quantized(x, whole(40, cols)).decoded();
    const std::vector<double> want = plain_nf4(x);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(double(got[i]), want[i], 1e-6 * 0.1) << i;
  }
}

TEST(Nf4Test, TakesLittleMoreThanFourBits) {
  const nf4::Layout layout = whole(4096, 4096);
  const double bits = 8 * double(layout.bytes() + 4 * (nf4::num_groups(4096 * 4096) + 1)) / (4096.0 * 4096);
  EXPECT_NEAR(bits, 4.127, 5e-4);
}

struct CutCase {
  int64_t rows, cols, first_row, num_rows, first_col, num_cols;
};
class Nf4CutTest : public testing::TestWithParam<CutCase> {};
INSTANTIATE_TEST_SUITE_P(Cuts, Nf4CutTest,
                         testing::Values(CutCase{8, 128, 4, 4, 0, 128}, CutCase{8, 128, 0, 8, 64, 64},
                                         CutCase{8, 128, 0, 8, 40, 50}, CutCase{9, 50, 3, 4, 0, 50},
                                         CutCase{9, 50, 0, 9, 17, 20}, CutCase{9, 50, 2, 0, 0, 50},
                                         CutCase{7, 70, 6, 1, 69, 1}),
                         [](const auto& test) {
                           const CutCase& c = test.param;
                           return fmt::format("{}x{}_rows{}to{}_cols{}to{}", c.rows, c.cols, c.first_row,
                                              c.first_row + c.num_rows, c.first_col, c.first_col + c.num_cols);
                         });

TEST_P(Nf4CutTest, HasTheValuesOfTheWhole) {
  const CutCase& c = GetParam();
  const std::vector<float> x = normal_values(c.rows * c.cols), all = Quantized(x, whole(c.rows, c.cols)).decoded();
  const nf4::Layout layout({c.rows, c.cols}, c.first_row, c.num_rows, c.first_col, c.num_cols);
  const std::vector<float> part = Quantized(x, layout).decoded();
  for (int64_t r = 0; r < c.num_rows; ++r)
    for (int64_t k = 0; k < c.num_cols; ++k)
      ASSERT_EQ(part[size_t(r * c.num_cols + k)], all[size_t((c.first_row + r) * c.cols + c.first_col + k)]);
  // Runs name every element once.
  int64_t elements = 0;
  layout.each_run(0, layout.blocks(), [&](int64_t, int64_t, int64_t, int64_t count) { elements += count; });
  EXPECT_EQ(elements, c.num_rows * c.num_cols);
}

struct StackCase {
  const char* name;
  Shape whole, here;
  std::array<int64_t, 3> first;
};
class Nf4StackTest : public testing::TestWithParam<StackCase> {};
INSTANTIATE_TEST_SUITE_P(Cuts, Nf4StackTest,
                         testing::Values(StackCase{"all", {3, 8, 64}, {3, 8, 64}, {0, 0, 0}},
                                         StackCase{"members_share_blocks", {3, 5, 24}, {3, 5, 24}, {0, 0, 0}},
                                         StackCase{"some_members", {5, 5, 24}, {2, 5, 24}, {3, 0, 0}},
                                         StackCase{"rows_of_each", {4, 8, 128}, {2, 4, 128}, {1, 4, 0}},
                                         StackCase{"odd_rows_of_each", {4, 7, 24}, {3, 3, 24}, {1, 2, 0}},
                                         StackCase{"columns_of_each", {4, 6, 128}, {2, 6, 64}, {2, 0, 64}},
                                         StackCase{"odd_columns_of_each", {4, 6, 70}, {4, 6, 33}, {0, 0, 37}},
                                         StackCase{"no_rows", {4, 6, 64}, {4, 0, 64}, {0, 6, 0}},
                                         StackCase{"no_columns", {4, 6, 64}, {4, 6, 0}, {0, 0, 64}},
                                         StackCase{"no_members", {4, 6, 64}, {0, 6, 64}, {4, 0, 0}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Nf4StackTest, EachMemberHasTheValuesOfTheWhole) {
  const StackCase& c = GetParam();
  const int64_t rows = c.here[1], cols = c.here[2];
  const std::vector<float> x = normal_values(c.whole.numel()),
                           all = Quantized(x, whole(c.whole[0] * c.whole[1], c.whole[2])).decoded();
  const Quantized here(x, nf4::Layout::of_stack(c.whole, c.here, c.first));
  int64_t elements = 0;
  here.layout.each_run(0, here.layout.blocks(), [&](int64_t, int64_t, int64_t, int64_t n) { elements += n; });
  EXPECT_EQ(elements, c.here.numel());  // runs name every element once
  for (int64_t e = 0; e < c.here[0]; ++e) {
    const nf4::Layout one = here.layout.part(e * rows, rows);
    const int64_t begin = here.layout.first_block_of(e * rows) * nf4::kBlockBytes;
    const nf4::Matrix member{here.matrix.blocks.slice_flat(begin, {one.bytes()}), here.matrix.scales, &one};
    std::vector<float> got(size_t(rows * cols));
    member.decode(0, rows, 0, cols, got.data());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < cols; ++k)
        ASSERT_EQ(got[size_t(r * cols + k)],
                  all[size_t(((c.first[0] + e) * c.whole[1] + c.first[1] + r) * c.whole[2] + c.first[2] + k)]);
  }
}

TEST(Nf4Test, DecodedValuesAndScalesGiveTheSameBitsAgain) {
  std::vector<float> x = normal_values(300 * 128);
  std::fill_n(x.begin() + 640, 64, 0.0f);  // a block of zeros
  const Quantized first(x, whole(300, 128));
  const std::vector<float> decoded = first.decoded();
  const Tensor& s = first.matrix.scales;
  const Quantized again(decoded, whole(300, 128), {s.data<float>(), size_t(s.numel())});
  EXPECT_EQ(again.decoded(), decoded);
}

struct ProductCase {
  const char* name;
  DType dtype;
  bool transpose_b;
  int64_t m, rows, cols;
};
class Nf4ProductTest : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(Products, Nf4ProductTest,
                         testing::Values(ProductCase{"f32_forward", DType::f32, true, 33, 70, 129},
                                         ProductCase{"f32_backward", DType::f32, false, 33, 70, 129},
                                         ProductCase{"bf16_forward", DType::bf16, true, 17, 96, 131},
                                         ProductCase{"bf16_backward", DType::bf16, false, 17, 131, 96},
                                         ProductCase{"one_row", DType::f32, true, 1, 300, 256}),
                         [](const auto& test) { return test.param.name; });

TEST_P(Nf4ProductTest, CpuEqualsReference) {
  const ProductCase& c = GetParam();
  TestRank rank(cpu_kernels(), 2);
  const Quantized b(normal_values(c.rows * c.cols), whole(c.rows, c.cols));
  const int64_t k = c.transpose_b ? c.cols : c.rows, n = c.transpose_b ? c.rows : c.cols;
  const Tensor a = rank.normal(c.dtype, {c.m, k}, "a");
  const Tensor y = rank.context.empty(DType::f32, {c.m, n}), want = rank.context.empty(DType::f32, {c.m, n});
  const MatmulArgs args{.y = y, .a = a, .transpose_b = c.transpose_b, .nf4_b = b.matrix};
  cpu_kernels().matmul(rank.stream, args);
  MatmulArgs other = args;
  other.y = want;
  reference_kernels().matmul(rank.stream, other);
  EXPECT_LE(relative_error(y, want), c.dtype == DType::f32 ? 2e-6 : 4e-3);
}

}  // namespace
}  // namespace weft
