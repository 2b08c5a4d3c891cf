// Activations on the cpu: functions, derivatives and gated forms, against the reference.
#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

class CpuActivationTest : public testing::TestWithParam<std::tuple<Activation, DType, int64_t>> {
 protected:
  // Values where the functions bend, and every fifth far out.
  Tensor input(std::string_view name) {
    const auto [f, dtype, count] = GetParam();
    const Tensor x = bench.random(DType::f64, {count}, name);
    for (int64_t i = 0; i < count; ++i) x.data<double>()[i] *= i % 5 == 4 ? 20 : 2;
    const Tensor result = bench.empty(dtype, {count});
    reference_kernels().convert(bench.stream, result, x);
    return result;
  }
  Tensor other(std::string_view name) {
    return bench.random(std::get<DType>(GetParam()), {std::get<int64_t>(GetParam())}, name);
  }
  double tolerance() const { return std::max(3e-6, rounding_of(std::get<DType>(GetParam()))); }
  Workbench bench;
};
INSTANTIATE_TEST_SUITE_P(All, CpuActivationTest,
                         testing::Combine(testing::Values(Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                                          Activation::relu_squared, Activation::silu,
                                                          Activation::gelu_quick, Activation::swiglu_oai,
                                                          Activation::swiglu_clipped, Activation::sigmoid,
                                                          Activation::tanh, Activation::identity),
                                          testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(0, 1, 7, 63, 64, 65, 4099, 70000)),
                         [](const auto& test) {
                           return fmt::format("{}_{}_{}", name_of(std::get<0>(test.param)),
                                              name_of(std::get<1>(test.param)), std::get<2>(test.param));
                         });

TEST_P(CpuActivationTest, EqualsReference) {
  const auto [f, dtype, count] = GetParam();
  const Tensor x = input("x"), y = bench.empty(dtype, {count});
  reference_kernels().activation(bench.stream, y, x, f);
  expect_everywhere({{"y", y, tolerance()}, {"in place", y, tolerance(), x}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::activation(stream, out[0], x, std::get<Activation>(GetParam()));
                      cpu::activation(stream, out[1], out[1], std::get<Activation>(GetParam()));
                    });
}

TEST_P(CpuActivationTest, BackwardEqualsReference) {
  const Activation f = std::get<Activation>(GetParam());
  const Tensor x = input("x"), dy = other("dy"), dx = bench.copy(x);
  reference_kernels().activation_backward(bench.stream, dx, dy, x, f);
  expect_everywhere({{"dx", dx, tolerance()}}, [&](Stream& stream, const std::vector<Tensor>& out) {
    cpu::activation_backward(stream, out[0], dy, x, f);
  });
}

TEST_P(CpuActivationTest, GatedEqualsReference) {
  const Activation f = std::get<Activation>(GetParam());
  const Tensor gate = input("gate"), up = input("up"), y = bench.copy(gate);
  reference_kernels().gated_activation(bench.stream, y, gate, up, f);
  expect_everywhere({{"y", y, tolerance()}}, [&](Stream& stream, const std::vector<Tensor>& out) {
    cpu::gated_activation(stream, out[0], gate, up, f);
  });
}

TEST_P(CpuActivationTest, GatedBackwardEqualsReference) {
  const Activation f = std::get<Activation>(GetParam());
  const Tensor gate = input("gate"), up = input("up"), dy = other("dy");
  const Tensor dgate = bench.copy(gate), dup = bench.copy(gate);
  reference_kernels().gated_activation_backward(bench.stream, dgate, dup, dy, gate, up, f);
  expect_everywhere({{"dgate", dgate, tolerance()}, {"dup", dup, tolerance()}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      cpu::gated_activation_backward(stream, out[0], out[1], dy, gate, up, f);
                    });
}

}  // namespace
}  // namespace weft
