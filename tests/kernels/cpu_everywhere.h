// expect_everywhere: runs a cpu kernel on every instruction set and two sizes of team, against expected tensors.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>

#include "weft/kernels/cpu/simd_targets.h"
#include "workbench.h"
// After simd_targets.h, which says what is compiled.
#include <hwy/targets.h>

namespace weft {

struct ExpectedOutput {
  std::string name;
  Tensor expected;
  double tolerance = 0;  // |actual - expected| <= tolerance (1 + |expected|)
  Tensor initial = {};   // what the output holds before the call; empty fills it with NaNs
};

// The instruction sets that kernels are compiled for and this machine has.
inline std::vector<int64_t> compiled_targets() {
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left; left &= left - 1) targets.push_back(left & -left);
  return targets;
}

// Makes the cpu kernels use one instruction set while it lives.
class OnTarget {
 public:
  explicit OnTarget(int64_t target) { set(target); }
  ~OnTarget() { set(0); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;

 private:
  static void set(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

// A tensor one element off alignment, between bytes that kernels must leave alone.
class GuardedTensor {
 public:
  GuardedTensor(Workbench& bench, const ExpectedOutput& output)
      : bytes_(output.expected.bytes() + kGuard + size_of(output.expected.dtype()) + kGuard),
        buffer_(bench.allocator.allocate(bytes_)) {
    std::memset(buffer_->data, 0xff, bytes_);
    tensor_ = {buffer_, output.expected.dtype(), output.expected.shape(), kGuard + size_of(output.expected.dtype())};
    if (output.initial) std::memcpy(tensor_.raw(), output.initial.raw(), tensor_.bytes());
  }
  const Tensor& tensor() const { return tensor_; }
  bool is_intact() const {
    const auto is_guard = [](std::byte byte) { return byte == std::byte(0xff); };
    const auto* begin = static_cast<const std::byte*>(tensor_.raw());
    return std::all_of(static_cast<const std::byte*>(buffer_->data), begin, is_guard) &&
           std::all_of(begin + tensor_.bytes(), static_cast<const std::byte*>(buffer_->data) + bytes_, is_guard);
  }

 private:
  static constexpr size_t kGuard = 64;
  size_t bytes_;
  BufferRef buffer_;
  Tensor tensor_;
};

inline void expect_output(const std::string& where, const Tensor& actual, const ExpectedOutput& output) {
  Workbench bench;
  const std::vector<double> is = bench.values(actual), should_be = bench.values(output.expected);
  // No assertion for each element: sanitizers would take longer over them than over the kernel.
  const double *const a = is.data(), *const b = should_be.data();
  const auto is_wrong = [&](size_t i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) return false;
    return !(std::abs(a[i] - b[i]) <= output.tolerance * (1 + std::abs(b[i])));
  };
  size_t wrong = 0;
  while (wrong < is.size() && !is_wrong(wrong)) ++wrong;
  ASSERT_EQ(wrong, is.size()) << where << ", element " << wrong << ": " << a[wrong] << " should be " << b[wrong];
}

// Calls kernel(stream, outputs) with every instruction set and with 1 and 3 threads. Every output must be near what
// is expected, have the same bits for both teams, and nothing around it may be written.
inline void expect_everywhere(const std::vector<ExpectedOutput>& outputs,
                              FunctionRef<void(Stream&, const std::vector<Tensor>&)> kernel) {
  Workbench one(1), three(3);
  for (const int64_t target : compiled_targets()) {
    const OnTarget on_target(target);
    std::vector<Tensor> first;
    for (Workbench* bench : {&one, &three}) {
      std::vector<GuardedTensor> guarded;
      std::vector<Tensor> tensors;
      for (const ExpectedOutput& output : outputs) tensors.push_back(guarded.emplace_back(*bench, output).tensor());
      kernel(bench->stream, tensors);
      for (size_t i = 0; i < outputs.size(); ++i) {
        const std::string where =
            fmt::format("{} on {} with {} threads", outputs[i].name, hwy::TargetName(target), bench->team.size());
        ASSERT_NO_FATAL_FAILURE(expect_output(where, tensors[i], outputs[i]));
        ASSERT_TRUE(guarded[i].is_intact()) << where << ": wrote outside of the tensor";
        const bool differs = !first.empty() && std::memcmp(first[i].raw(), tensors[i].raw(), tensors[i].bytes()) != 0;
        ASSERT_FALSE(differs) << where << ": not the same bits as with 1 thread";
      }
      first = tensors;
    }
  }
}

// One unit in the last place of a result of this dtype, which rounding f32 instead of double may cost; two for f32.
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-15;
    case DType::bf16: return 0x1p-7;
    case DType::f16: return 0x1p-10;
    default: return 0x1p-22;
  }
}

}  // namespace weft
