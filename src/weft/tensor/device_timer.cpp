// make_timer: of the device of a stream.
#include "weft/tensor/device_timer.h"

#include "weft/tensor/cuda/cuda_device.h"
#include "weft/tensor/stream.h"

namespace weft {

std::unique_ptr<DeviceTimer> make_timer(Stream& stream) {
  return stream.allocator().device() == Device::cuda ? make_cuda_timer(stream.queue()) : nullptr;
}

}  // namespace weft
