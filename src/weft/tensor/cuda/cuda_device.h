// CUDA devices: which there are, their memory, and their queues. A build without CUDA has none and says so.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/tensor/device_queue.h"
#include "weft/tensor/device_timer.h"

namespace weft {

struct CudaDevice {
  std::string name;
  int64_t total_bytes = 0, free_bytes = 0;
  int num_multiprocessors = 0;
  int compute_capability = 0;  // 90 is 9.0
};

bool has_cuda();  // built with it
// 0 where there is no driver or no card; `why`, if given, then says what is missing. Asking this takes no memory of a
// device, as asking the others below does, about half a GiB of each.
int num_cuda_devices(std::string* why = nullptr);
// Those that can be used; `why` says what is wrong with another, or why there are none.
std::vector<CudaDevice> cuda_devices(std::string* why = nullptr);
CudaDevice cuda_device_of(int rank);  // which a rank uses; throws Error when there is none

// Of the calling thread, and of the tensors and queues that it makes from now on: ranks take the machine's devices in
// turn, and share them where there are fewer. Throws Error when there is none.
void use_cuda_device(int rank);

// 256-byte aligned; null when the device has no such block left. Of the calling thread's device.
std::byte* allocate_on_cuda(size_t bytes);
void free_on_cuda(std::byte* data) noexcept;
void clear_on_cuda(std::byte* data, size_t bytes);  // to zeros, before all work that is queued later

// Memory of the host that copies reach at the full speed of the bus and without the host's help, page-aligned; null
// when the system pins no more.
std::byte* allocate_pinned(size_t bytes);
void free_pinned(std::byte* data) noexcept;

std::unique_ptr<DeviceQueue> make_cuda_queue();                    // on the calling thread's device
std::unique_ptr<DeviceTimer> make_cuda_timer(DeviceQueue& queue);  // of such a queue, which outlives it

}  // namespace weft
