// Limits: the probes of the CPU, and the catalogue by the device's name.
#include "limits.h"

#include "weft/plan/cost_model.h"
#include "weft/plan/device_hardware.h"

namespace weft::app {
namespace {

std::optional<plan::Hardware> hardware_here() {
  const std::vector<CudaDevice> devices = cuda_devices();
  if (devices.empty()) return std::nullopt;
  return plan::hardware_of_device(devices.front().name, double(devices.front().total_bytes));
}

// Of a device, what a rank has: they take devices in turn, and share them where there are fewer.
double share_of(int ranks) { return std::min(1.0, double(cuda_devices().size()) / ranks); }

bool is_on_host(Stream& stream) { return stream.allocator().device() == Device::cpu; }

}  // namespace

double peak_flops(Stream& stream, DType dtype, int ranks) {
  if (is_on_host(stream)) return cpu::measure_peak_flops(stream.team(), dtype);
  return device_peak_flops(dtype) * share_of(ranks);
}

double read_bandwidth(Stream& stream, int ranks) {
  if (is_on_host(stream)) return cpu::measure_read_bandwidth(stream.team());
  const auto hardware = hardware_here();
  return hardware ? hardware->memory_bytes_per_s * share_of(ranks) : 0;
}

ReadLimit::ReadLimit(Stream& stream) {
  if (is_on_host(stream))
    probe_.emplace(stream.team());
  else
    of_device_ = read_bandwidth(stream);
}

double device_peak_flops(DType dtype) {
  const auto hardware = hardware_here();
  return hardware ? hardware->peak(plan::matmul_type_of(dtype)) : 0;
}

}  // namespace weft::app
