// LateCopy: what a device wrote, for a host that reads it later and lets the device go on meanwhile.
#pragma once
#include <memory>

#include "weft/tensor/device_queue.h"
#include "weft/tensor/host_block.h"
#include "weft/tensor/tensor.h"

namespace weft {

class Stream;

class LateCopy {
 public:
  // Of a tensor of the stream's device, behind what was queued until now; in place of the copy before.
  void start(Stream& stream, const Tensor& from);
  // The bytes of that tensor, when they are there; until the next start().
  const std::byte* wait();

 private:
  HostBlock block_;
  std::unique_ptr<DeviceQueue::Point> there_;
};

}  // namespace weft
