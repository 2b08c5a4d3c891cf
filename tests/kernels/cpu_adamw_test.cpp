// AdamW on the cpu: master, moments and value after two steps, against the reference.
#include "cpu_everywhere.h"
#include "masters.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

struct AdamWCase {
  int64_t count;
  DType value, grad = DType::f32;
};

class CpuAdamWTest : public testing::TestWithParam<AdamWCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CpuAdamWTest,
    testing::Values(AdamWCase{0, DType::bf16}, AdamWCase{1, DType::bf16}, AdamWCase{7, DType::f16},
                    AdamWCase{1000, DType::bf16}, AdamWCase{4099, DType::f16}, AdamWCase{40000, DType::bf16},
                    AdamWCase{999, DType::bf16, DType::bf16}, AdamWCase{40000, DType::bf16, DType::bf16},
                    AdamWCase{999, DType::f16, DType::f16}),
    [](const auto& test) {
      return fmt::format("{}_{}_gradient_{}", test.param.count, name_of(test.param.value), name_of(test.param.grad));
    });

void run_steps(const Kernels& k, Stream& stream, const std::vector<Tensor>& state, const Tensor& grad,
               const Tensor& value) {
  AdamWArgs args{.grad_scale = 0.5f, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .weight_decay = 0.1f};
  args.m = state[1], args.v = state[2], args.grad = grad;
  on_masters(k, stream, state[0], value, [&](const Tensor& master, const Tensor& beside) {
    args.master = master, args.value = beside;
    for (int step = 1; step <= 2; ++step) {
      args.bias_correction1 = 1 - std::pow(args.beta1, float(step));
      args.bias_correction2 = 1 - std::pow(args.beta2, float(step));
      k.adamw(stream, args);
    }
  });
}

TEST_P(CpuAdamWTest, EqualsReference) {
  const auto [count, dtype, grad_dtype] = GetParam();
  Workbench bench;
  const Tensor master = bench.random(DType::f32, {count}, "master"), grad = bench.random(grad_dtype, {count}, "grad");
  const Tensor zero = bench.allocator.zeros(DType::f32, {count});
  const std::vector<Tensor> state = {bench.copy(master), bench.copy(zero), bench.copy(zero)};
  const Tensor value = bench.empty(dtype, {count});
  run_steps(reference_kernels(), bench.stream, state, grad, value);
  expect_everywhere({{"master", state[0], 1e-6, master},
                     {"m", state[1], 1e-6, zero},
                     {"v", state[2], 1e-6, zero},
                     {"value", value, rounding_of(dtype)}},
                    [&](Stream& stream, const std::vector<Tensor>& out) {
                      run_steps(cpu_kernels(), stream, {out[0], out[1], out[2]}, grad, out[3]);
                    });
  if (grad_dtype != DType::f32) return;
  expect_everywhere(
      {{"master without value", state[0], 1e-6, master}, {"m", state[1], 1e-6, zero}, {"v", state[2], 1e-6, zero}},
      [&](Stream& stream, const std::vector<Tensor>& out) { run_steps(cpu_kernels(), stream, out, grad, {}); });
}

TEST(CpuAdamW, KeepsSmallDecaysAndZeroGradients) {
  Workbench bench(2);
  const int64_t count = 100;
  const Tensor master = bench.of(DType::f32, {count}, std::vector<double>(100, 3.0));
  const Tensor zero = bench.allocator.zeros(DType::f32, {count});
  const Tensor m = bench.copy(zero), v = bench.copy(zero);
  AdamWArgs args{.master = master, .m = m, .v = v, .grad = zero};
  args.lr = 1e-4f, args.weight_decay = 0.1f, args.bias_correction1 = 0.1f, args.bias_correction2 = 0.01f;
  for (int step = 0; step < 100; ++step) cpu::adamw(bench.stream, args);
  // 100 decays of 3e-5, each rounded at 2.4e-7 / 2.
  for (const double value : bench.values(master)) EXPECT_NEAR(value, 3 * std::pow(1 - 1e-5, 100), 1.5e-5);
}

}  // namespace
}  // namespace weft
