// Norms on the cpu, with and without residual and bias, and their gradients, against the reference.
#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

struct NormCase {
  NormKind kind;
  DType dtype, weight;
  int64_t rows, cols;
};

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const NormKind kind : {NormKind::rms, NormKind::layer})
    for (const auto& [dtype, weight] :
         {std::pair(DType::f32, DType::f32), std::pair(DType::bf16, DType::bf16), std::pair(DType::bf16, DType::f32),
          std::pair(DType::f16, DType::f16), std::pair(DType::f16, DType::f32)})
      for (const auto& [rows, cols] :
           {std::pair(0, 8), std::pair(1, 2), std::pair(5, 7), std::pair(9, 63), std::pair(200, 64),
            std::pair(33, 65), std::pair(70, 1000), std::pair(20, 4099)})
        cases.push_back({kind, dtype, weight, rows, cols});
  return cases;
}

class CpuNormTest : public testing::TestWithParam<NormCase> {
 protected:
  bool is_layer() const { return GetParam().kind == NormKind::layer; }
  Shape shape() const { return {GetParam().rows, GetParam().cols}; }
  Tensor random(std::string_view name) { return bench.random(GetParam().dtype, shape(), name); }
  Tensor weight_like(std::string_view name) { return bench.random(GetParam().weight, {GetParam().cols}, name); }
  double tolerance() const {
    return GetParam().dtype == DType::f32 ? 3e-6 : GetParam().dtype == DType::bf16 ? 0x1p-8 : 0x1p-10;
  }
  Workbench bench;
};
INSTANTIATE_TEST_SUITE_P(All, CpuNormTest, testing::ValuesIn(norm_cases()), [](const auto& test) {
  const NormCase& c = test.param;
  return fmt::format("{}_{}_{}_{}x{}", c.kind == NormKind::rms ? "rms" : "layer", name_of(c.dtype), name_of(c.weight),
                     c.rows, c.cols);
});

TEST_P(CpuNormTest, EqualsReference) {
  NormArgs args{.kind = GetParam().kind, .x = random("x"), .weight = weight_like("weight"), .eps = 1e-5f};
  args.bias = is_layer() ? weight_like("bias") : Tensor();
  args.y = bench.empty(GetParam().dtype, shape());
  args.rstd = bench.empty(DType::f32, {GetParam().rows});
  args.mean = bench.empty(DType::f32, {GetParam().rows});
  reference_kernels().norm(bench.stream, args);
  std::vector<ExpectedOutput> outputs = {{"y", args.y, tolerance()}, {"rstd", args.rstd, 1e-5}};
  if (is_layer()) outputs.push_back({"mean", args.mean, 1e-6});
  expect_everywhere(outputs, [&](Stream& stream, const std::vector<Tensor>& out) {
    NormArgs with = args;
    with.y = out[0], with.rstd = out[1], with.mean = is_layer() ? out[2] : Tensor();
    cpu::norm(stream, with);
  });
}

TEST_P(CpuNormTest, AddsTheResidualFirst) {
  NormArgs args{.kind = GetParam().kind, .x = random("x"), .weight = weight_like("weight"), .eps = 1e-5f};
  const Tensor x = args.x, residual = random("residual"), sum = bench.copy(x);
  reference_kernels().add(bench.stream, sum, x, residual);
  args.x = sum;  // what is normalised is the sum as stored
  args.y = bench.empty(GetParam().dtype, shape());
  args.rstd = bench.empty(DType::f32, {GetParam().rows});
  args.mean = bench.empty(DType::f32, {GetParam().rows});
  reference_kernels().norm(bench.stream, args);
  // Where f32 rounds a bf16 sum the other way than double does, both results follow.
  expect_everywhere({{"y", args.y, 4 * tolerance()}, {"sum", sum, rounding_of(GetParam().dtype)}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      NormArgs with = args;
                      with.x = x, with.residual = residual, with.y = out[0], with.sum = out[1];
                      with.rstd = bench.copy(args.rstd), with.mean = bench.copy(args.mean);
                      cpu::norm(stream, with);
                    });
}

TEST_P(CpuNormTest, BackwardEqualsReference) {
  const NormCase& c = GetParam();
  NormArgs forward{.kind = c.kind, .x = random("x"), .weight = weight_like("weight"), .eps = 1e-5f};
  forward.y = bench.empty(c.dtype, shape());
  forward.rstd = bench.empty(DType::f32, {c.rows}), forward.mean = bench.empty(DType::f32, {c.rows});
  reference_kernels().norm(bench.stream, forward);
  const Tensor before = bench.random(DType::f32, {c.cols}, "before"), dsum = random("dsum");
  for (const bool accumulate : {true, false}) {
    NormBackwardArgs args{.kind = c.kind, .accumulate = accumulate, .dy = random("dy"), .x = forward.x};
    args.mean = forward.mean, args.rstd = forward.rstd, args.weight = forward.weight;
    args.dsum = accumulate ? dsum : Tensor();
    args.dx = bench.copy(dsum), args.dweight = bench.copy(before), args.dbias = bench.copy(before);
    reference_kernels().norm_backward(bench.stream, args);
    // rms over two columns amplifies the error of rstd
    const double sums = 2e-5, dx = c.dtype == DType::f32 ? 2e-5 : 0x1p-7;
    std::vector<ExpectedOutput> outputs = {{"dx", args.dx, dx, dsum}, {"dweight", args.dweight, sums, before}};
    if (is_layer()) outputs.push_back({"dbias", args.dbias, sums, before});
    expect_everywhere(outputs, [&](Stream& stream, const std::vector<Tensor>& out) {
      NormBackwardArgs with = args;
      with.dx = out[0], with.dweight = out[1], with.dbias = is_layer() ? out[2] : Tensor();
      if (accumulate) with.dsum = out[0];  // dx may be dsum
      cpu::norm_backward(stream, with);
    });
  }
}

TEST(CpuNorm, KeepsTheVarianceOfRowsFarFromZero) {
  Workbench bench;
  const int64_t cols = 512;
  const Tensor x = bench.random(DType::f32, {3, cols}, "x");
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += 1000;
  NormArgs args{.kind = NormKind::layer, .x = x, .weight = bench.of(DType::f32, {cols}, std::vector<double>(512, 1))};
  args.y = bench.copy(x), args.rstd = bench.empty(DType::f32, {3}), args.mean = bench.empty(DType::f32, {3});
  NormArgs expected = args;
  expected.y = bench.copy(x), expected.rstd = bench.copy(args.rstd);
  reference_kernels().norm(bench.stream, expected);
  cpu::norm(bench.stream, args);
  // Sums of squares would be off by 1e6 2^-24 = 6% of the variance.
  expect_near("rstd", bench.values(args.rstd), bench.values(expected.rstd), 1e-4);
}

TEST(CpuNorm, RefusesWhatItDoesNotCompute) {
  Workbench bench;
  NormArgs args{.x = bench.random(DType::f64, {2, 8}, "x"), .weight = bench.random(DType::f64, {8}, "weight")};
  args.y = bench.copy(args.x), args.rstd = bench.empty(DType::f64, {2});
  EXPECT_THROW(cpu::norm(bench.stream, args), Error);
}

}  // namespace
}  // namespace weft
