// Optimizer states in codes of 8 bits: moments to encode, and steps of AdamW with them.
#pragma once
#include "masters.h"
#include "weft/kernels/block_codes.h"
#include "workbench.h"

namespace weft {

// Of nine magnitudes, the second block all zeros. On the host.
inline Tensor random_moments(Workbench& bench, int64_t count, bool is_signed) {
  const Tensor x = bench.random(DType::f32, {count}, "x");
  for (int64_t i = 0; i < count; ++i) {
    float& e = x.data<float>()[i];
    e *= std::pow(10.0f, -float(i % 9));
    if (!is_signed) e = std::abs(e);
    if (i >= 256 && i < 512) e = 0;
  }
  return x;
}

// The master and the value, in bf16, after three steps with moments of the bench's device.
struct SteppedAdamW8 {
  std::vector<double> master, value;

  SteppedAdamW8(Workbench& bench, const Kernels& k, int64_t count, DType grad = DType::f32) {
    const int64_t blocks = block_codes::num_blocks(count);
    const auto input = [&](DType type, const char* name) {
      return bench.on_device(bench.random(type, {count}, name));
    };
    const Tensor whole = input(DType::f32, "master");
    AdamW8Args args{.m = bench.empty(DType::u8, {count}),
                    .v = bench.empty(DType::u8, {count}),
                    .m_scale = bench.allocator.zeros(DType::f32, {blocks}),
                    .v_scale = bench.allocator.zeros(DType::f32, {blocks})};
    args.adamw = {.master = {},
                  .value = bench.empty(DType::bf16, {count}),
                  .grad = input(grad, "grad"),
                  .grad_scale = 0.5f,
                  .lr = 0.01f,
                  .beta1 = 0.9f,
                  .beta2 = 0.99f,
                  .weight_decay = 0.1f};
    on_masters(k, bench.stream, whole, args.adamw.value, [&](const Tensor& lower, const Tensor&) {
      args.adamw.master = lower;
      for (int step = 1; step <= 3; ++step) {
        args.adamw.bias_correction1 = 1 - std::pow(0.9f, float(step));
        args.adamw.bias_correction2 = 1 - std::pow(0.99f, float(step));
        k.adamw8(bench.stream, args);
      }
    });
    master = bench.values(whole), value = bench.values(args.adamw.value);
  }

  // How many elements of the master are not those of `want`. A code of a neighbour may change an update by a little.
  int64_t num_that_differ(const SteppedAdamW8& want) const {
    int64_t count = 0;
    for (size_t i = 0; i < master.size(); ++i) {
      count += std::abs(master[i] - want.master[i]) > 1e-6 * (1 + std::abs(want.master[i]));
      EXPECT_NEAR(master[i], want.master[i], 1e-3) << i;
    }
    return count;
  }
};

}  // namespace weft
