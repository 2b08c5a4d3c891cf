// Products in fp8 on devices: which multiply codes and in which shapes, and the reference's results, by codes and by
// numbers on the grid, with every epilogue, for operands that run along their memory and across it.
#include <gtest/gtest.h>

#include <limits>

#include "cuda/emulation.h"
#include "kernels/workbench.h"
#include "weft/kernels/cuda/float8_way.h"

namespace weft {
namespace {

TEST(RoundedShapeTest, IsWhatTheLibraryTakes) {
  EXPECT_TRUE(cuda::multiplies_codes(90, 4096));
  EXPECT_FALSE(cuda::multiplies_codes(90, 4104));  // no multiple of 16
  for (const int other : {80, 89, 100}) EXPECT_FALSE(cuda::multiplies_codes(other, 4096)) << other;
  const cuda::RoundedShape whole = cuda::rounded_shape(12, 256, false), odd = cuda::rounded_shape(9, 257, false);
  EXPECT_EQ(whole.rows, 12);
  EXPECT_EQ(whole.length, 256);
  EXPECT_TRUE(whole.is_in_place);
  EXPECT_EQ(odd.rows, 12);
  EXPECT_EQ(odd.length, 384);
  EXPECT_FALSE(odd.is_in_place);
  EXPECT_FALSE(cuda::rounded_shape(12, 256, true).is_in_place);
  EXPECT_EQ(cuda::rounding_across(12, 384).blocks_x, 9u);
  EXPECT_EQ(cuda::rounding_down(33, 384).blocks_x, 2u);
  EXPECT_EQ(cuda::rounding_down(33, 384).blocks_y, 3u);
}

struct RoundedForm {
  const char* name;
  bool transpose_a, transpose_b;
};
constexpr RoundedForm kRoundedForms[] = {
    {"forward", false, true}, {"input_gradient", false, false}, {"weight_gradient", true, false}};

class CudaMatmulRounded : public testing::TestWithParam<std::tuple<RoundedForm, int>> {
 protected:
  // Of a GPU that multiplies codes, and of one that does not.
  void SetUp() override {
    if (!has_capability(std::get<1>(GetParam()))) GTEST_SKIP() << "another card";
  }
  RoundedForm c() const { return std::get<0>(GetParam()); }

  const EmulatedCapability capability_{std::get<1>(GetParam())};

  // Sizes of groups differ, so that a scale in the wrong place shows.
  Tensor operand(Workbench& bench, const char* name, int64_t lines, int64_t k, bool runs_down) {
    const Tensor x = bench.random(DType::bf16, runs_down ? Shape{k, lines} : Shape{lines, k}, name);
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t i = 0; i < k; ++i) {
        BFloat16& v = x.data<BFloat16>()[runs_down ? i * lines + line : line * k + i];
        v = BFloat16(std::ldexp(float(v), int((i / 128 * 5 + line * 3) % 17 - 8)));
      }
    return x;
  }
};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmulRounded,
                         testing::Combine(testing::ValuesIn(kRoundedForms), testing::Values(90, 80)),
                         [](const auto& test) {
                           return fmt::format("{}_on_{}", std::get<0>(test.param).name, std::get<1>(test.param));
                         });

TEST_P(CudaMatmulRounded, EqualsTheReference) {
  struct Size {
    int64_t m, n, k;
  };
  using Kind = Epilogue::Kind;
  for (const Size s : {Size{12, 32, 256}, Size{9, 48, 300}, Size{37, 16, 5}, Size{10, 7, 130}})
    for (const Kind kind : {Kind::none, Kind::gated, Kind::gated_backward}) {
      Workbench host, bench(1, Device::cuda);
      const Tensor a = operand(host, "a", s.m, s.k, c().transpose_a),
                   b = operand(host, "b", s.n, s.k, !c().transpose_b);
      const Tensor bias = host.random(DType::bf16, {s.n}, "bias"),
                   gate = host.random(DType::bf16, {s.m, s.n}, "gate");
      const auto multiply = [&](Workbench& w, const Kernels& kernels, auto&& placed) {
        const auto out = [&] { return w.empty(DType::f32, {s.m, s.n}); };
        MatmulArgs args{.y = out(),
                        .a = placed(a),
                        .b = placed(b),
                        .transpose_a = c().transpose_a,
                        .transpose_b = c().transpose_b,
                        .float8 = true,
                        .epilogue = {.kind = kind, .bias = placed(bias), .gate = placed(gate)}};
        if (kind == Kind::gated) args.epilogue.act = out();
        if (kind == Kind::gated_backward) args.epilogue.up = placed(gate), args.epilogue.dgate = out();
        kernels.matmul(w.stream, args);
        std::vector<std::vector<double>> all{w.values(args.y)};
        if (kind == Kind::none) {
          args.epilogue.bias = {}, args.accumulate = true;
          kernels.matmul(w.stream, args);
          all.push_back(w.values(args.y));
        }
        if (args.epilogue.act) all.push_back(w.values(args.epilogue.act));
        if (args.epilogue.dgate) all.push_back(w.values(args.epilogue.dgate));
        return all;
      };
      const auto got = multiply(bench, cuda_kernels(), [&](const Tensor& t) { return bench.on_device(t); });
      const auto want = multiply(host, reference_kernels(), [](const Tensor& t) { return t; });
      for (size_t t = 0; t < want.size(); ++t) {
        // What a row adds up is at most as large as its largest product, of which there are k. Tensor cores keep some
        // 13 bits of the sums of codes.
        const double part = kIsEmulated ? 2e-5 : 0x1p-10;
        for (size_t i = 0; i < want[t].size(); ++i) {
          double largest = 0;
          for (size_t j = i / size_t(s.n) * size_t(s.n); j < (i / size_t(s.n) + 1) * size_t(s.n); ++j)
            largest = std::max(largest, std::abs(want[t][j]));
          ASSERT_NEAR(got[t][i], want[t][i], part * largest) << s.k << ", tensor " << t << ": " << i;
        }
      }
    }
}

TEST_P(CudaMatmulRounded, WhatIsNoNumberShowsInItsRow) {
  Workbench host, bench(1, Device::cuda);
  const int64_t m = 12, n = 16, k = 300;
  const Tensor a = operand(host, "a", m, k, c().transpose_a), b = operand(host, "b", n, k, !c().transpose_b);
  const auto at = [&](int64_t row, int64_t i) -> BFloat16& {
    return a.data<BFloat16>()[c().transpose_a ? i * m + row : row * k + i];
  };
  for (int64_t i = 0; i < k; ++i) at(0, i) = BFloat16(0), at(1, i) = BFloat16(1e-40f);
  at(2, 77) = BFloat16(std::numeric_limits<float>::quiet_NaN());
  at(3, 299) = BFloat16(-std::numeric_limits<float>::infinity());
  const Tensor y = bench.empty(DType::f32, {m, n});
  cuda_kernels().matmul(bench.stream, {.y = y,
                                       .a = bench.on_device(a),
                                       .b = bench.on_device(b),
                                       .transpose_a = c().transpose_a,
                                       .transpose_b = c().transpose_b,
                                       .float8 = true});
  const std::vector<double> got = bench.values(y);
  for (int64_t i = 0; i < m * n; ++i) {
    const int64_t row = i / n;
    if (row < 2) ASSERT_EQ(got[size_t(i)], 0);
    if (row >= 2) ASSERT_EQ(std::isfinite(got[size_t(i)]), row >= 4) << "row " << row;
  }
}

}  // namespace
}  // namespace weft
