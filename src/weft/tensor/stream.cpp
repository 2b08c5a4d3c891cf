// Stream: copies between devices.
#include "weft/tensor/stream.h"

#include "weft/tensor/cuda/cuda_device.h"

namespace weft {

std::unique_ptr<DeviceQueue> Stream::make_queue(Device device) {
  return device == Device::cuda ? make_cuda_queue() : nullptr;
}

void Stream::copy(const Tensor& to, const Tensor& from) {
  check(to.bytes() == from.bytes(), "{} bytes cannot be copied to {}", from.bytes(), to.bytes());
  if (to.bytes() == 0 || to.device() == Device::meta || from.device() == Device::meta) return;
  const bool is_from_host = from.device() == Device::cpu, is_to_host = to.device() == Device::cpu;
  if (is_from_host && is_to_host)
    std::memcpy(to.raw(), from.raw(), to.bytes());
  else if (is_from_host)
    queue().copy_to_device(to.raw(), from.raw(), to.bytes());
  else if (is_to_host)
    queue().copy_to_host(to.raw(), from.raw(), to.bytes());
  else
    queue().copy_on_device(to.raw(), from.raw(), to.bytes());
}

}  // namespace weft
