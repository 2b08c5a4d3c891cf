// Operands: the tensors of one kernel call, made twice: as a backend gets them, and in f64 with the very same values.
#pragma once
#include "workbench.h"

namespace weft {

// Every tensor lies between guards of NaNs, so that a kernel which reads or writes outside of it shows; at an odd
// offset, unless the guards are of whole vectors. Outputs hold NaN. With is_exact every dtype becomes f64, but values
// stay those of the dtype asked for.
class Operands {
 public:
  struct Output {
    std::string name;
    Tensor tensor;
  };

  Operands(Workbench& bench, DType type, bool is_exact, int64_t guard = kOddGuard)
      : bench_(bench), type_(type), is_exact_(is_exact), guard_(guard) {}

  static constexpr int64_t kOddGuard = 37, kWholeGuard = 64;  // elements

  DType type() const { return type_; }

  // Inputs: normal deviates, the same for the same name. x is of the case's dtype, f32 of f32 beside any dtype.
  Tensor x(std::string_view name, Shape shape) { return filled(type_, name, shape); }
  Tensor f32(std::string_view name, Shape shape) { return filled(DType::f32, name, shape); }
  Tensor of(DType type, std::string_view name, Shape shape) { return filled(type, name, shape); }
  Tensor positive_f32(std::string_view name, Shape shape) {
    const Tensor values = bench_.random(DType::f32, shape, name);
    for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] = std::abs(values.data<float>()[i]);
    return copied(DType::f32, values);
  }

  // Words of random bits, the same for the same name; never f64.
  Tensor words(std::string_view name, Shape shape) {
    const Tensor bits = bench_.host.empty(DType::i32, shape);
    for (int64_t i = 0; i < bits.numel(); ++i)
      bits.data<int32_t>()[i] = int32_t(philox(name_hash(name), uint64_t(i))[0]);
    return bench_.on_device(bits);
  }

  Tensor out(std::string_view name, Shape shape) { return recorded(name, guarded(type_, shape)); }
  Tensor out_f32(std::string_view name, Shape shape) { return recorded(name, guarded(DType::f32, shape)); }
  Tensor out_of(DType type, std::string_view name, Shape shape) { return recorded(name, guarded(type, shape)); }

  // Read and written.
  Tensor inout(std::string_view name, Shape shape) { return recorded(name, x(name, shape)); }
  Tensor inout_f32(std::string_view name, Shape shape) { return recorded(name, f32(name, shape)); }
  Tensor recorded(std::string_view name, Tensor tensor) {
    outputs_.push_back({std::string(name), tensor});
    return tensor;
  }

  // A number the kernel returns.
  void result(std::string_view name, double value) { recorded(name, bench_.vector({value})); }

  const std::vector<Output>& outputs() const { return outputs_; }

  void expect_guards_untouched() const {
    for (const Tensor& guarded : wholes_) {
      const Tensor whole = bench_.on_host(guarded);
      const auto* bytes = static_cast<const unsigned char*>(whole.raw());
      const size_t guard = size_t(guard_) * size_of(whole.dtype());
      for (size_t i = 0; i < guard; ++i) {
        ASSERT_EQ(bytes[i], 0xff) << "a kernel wrote before a tensor of " << whole.numel() - 2 * guard_;
        ASSERT_EQ(bytes[whole.bytes() - 1 - i], 0xff) << "a kernel wrote after " << whole.numel() - 2 * guard_;
      }
    }
  }

 private:
  // Without values every byte is 0xff.
  Tensor guarded(DType type, Shape shape, const Tensor& values = {}) {
    const Tensor whole = bench_.host.empty(is_exact_ ? DType::f64 : type, {shape.numel() + 2 * guard_});
    std::memset(whole.raw(), 0xff, whole.bytes());
    if (values) reference_kernels().convert(bench_.stream, whole.slice_flat(guard_, shape), values);
    wholes_.push_back(bench_.on_device(whole));
    return wholes_.back().slice_flat(guard_, shape);
  }
  Tensor copied(DType type, const Tensor& values) { return guarded(type, values.shape(), values); }
  Tensor filled(DType type, std::string_view name, Shape shape) {
    return copied(type, bench_.random(type, shape, name));
  }

  Workbench& bench_;
  DType type_;
  bool is_exact_;
  int64_t guard_;
  std::vector<Tensor> wholes_;
  std::vector<Output> outputs_;
};

}  // namespace weft
