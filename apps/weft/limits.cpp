// Limits: the probes of the CPU, a product and a copy on a device, and the catalogue by the device's name.
#include "limits.h"

#include "bench.h"
#include "weft/plan/cost_model.h"
#include "weft/plan/device_hardware.h"

namespace weft::app {
namespace {

bool is_on_host(Stream& stream) { return stream.allocator().device() == Device::cpu; }

// What is measured grows until it takes so long that the device, and not its queue, is what takes the time.
constexpr int64_t kGrowth = 8;

double product_flops(Stream& stream, DType dtype) {
  constexpr double kLong = 1e-3;
  const int64_t largest = dtype == DType::f32 ? 4096 : 8192;
  Allocator memory(stream.allocator().device());  // of its own: what a rank takes stays what is reported of it
  Context context{kernels_of(memory.device()), stream};
  for (int64_t n = largest / (kGrowth * kGrowth);; n *= kGrowth) {
    const Tensor a = memory.empty(dtype, {n, n}), b = memory.empty(dtype, {n, n}), y = memory.empty(dtype, {n, n});
    fill_with_noise(context, a), fill_with_noise(context, b);
    const auto multiply = [&] { context.kernels.matmul(stream, {.y = y, .a = a, .b = b, .transpose_b = true}); };
    const double seconds = median(time_calls(stream, 10, multiply));
    if (n == largest || seconds > kLong) return 2 * double(n) * double(n) * double(n) / seconds;
  }
}

}  // namespace

double peak_flops(Stream& stream, DType dtype) {
  return is_on_host(stream) ? cpu::measure_peak_flops(stream.team(), dtype) : product_flops(stream, dtype);
}

double read_bandwidth(Stream& stream) {
  return is_on_host(stream) ? cpu::measure_read_bandwidth(stream.team()) : ReadLimit(stream).measure();
}

struct ReadLimit::DeviceCopy {
  explicit DeviceCopy(Stream& s) : stream(s), memory(s.allocator().device()) {
    constexpr int64_t kLargest = int64_t(256) << 20;  // several times any device's cache
    constexpr double kLong = 1e-4;
    for (int64_t bytes = kLargest / (kGrowth * kGrowth);; bytes *= kGrowth) {
      from = memory.empty(DType::f32, {bytes / 4}), to = memory.empty(DType::f32, {bytes / 4});
      kernels_of(memory.device()).fill(stream, from, 1);
      if (bytes == kLargest || seconds() > kLong) return;
    }
  }
  double seconds() {
    return median(time_calls(stream, 5, [this] { stream.copy(to, from); }));
  }
  double bytes_per_s() { return 2 * double(from.bytes()) / seconds(); }

  Stream& stream;
  Allocator memory;
  Tensor from, to;
};

ReadLimit::ReadLimit(Stream& stream) {
  if (is_on_host(stream))
    probe_.emplace(stream.team());
  else
    copy_ = std::make_shared<DeviceCopy>(stream);
}

double ReadLimit::measure() { return probe_ ? probe_->pass() : copy_->bytes_per_s(); }

double device_peak_flops(DType dtype) {
  if (num_cuda_devices() == 0) return 0;
  const CudaDevice device = cuda_device_of(0);
  const auto hardware = plan::hardware_of_device(device.name, double(device.total_bytes));
  return hardware ? hardware->peak(plan::matmul_type_of(dtype)) : 0;
}

}  // namespace weft::app
