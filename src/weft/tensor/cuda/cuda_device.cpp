// CUDA devices, by the CUDA runtime.
#include "weft/tensor/cuda/cuda_device.h"

#include "weft/tensor/cuda/check_cuda.h"
#include "weft/tensor/cuda/cuda_queue.h"
#include "weft/tensor/cuda/cuda_timer.h"

namespace weft {

namespace {

CudaDevice describe(int device) {
  cudaDeviceProp p{};
  size_t free = 0, total = 0;
  int before = 0;
  cudaGetDevice(&before);
  check_cuda(cudaGetDeviceProperties(&p, device), "ask a device what it is");
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaMemGetInfo(&free, &total);
  cudaSetDevice(before);
  check_cuda(status, "ask a device for its memory");
  return {.name = p.name,
          .total_bytes = int64_t(total),
          .free_bytes = int64_t(free),
          .num_multiprocessors = p.multiProcessorCount,
          .compute_capability = 10 * p.major + p.minor};
}

// Which a rank uses.
int device_of(int rank) {
  std::string why;
  const int count = num_cuda_devices(&why);
  if (count == 0) throw Error("{}", why.empty() ? "this machine has no CUDA device" : why);
  return rank % count;
}

}  // namespace

bool has_cuda() { return true; }

int num_cuda_devices(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess) return count;
  cudaGetLastError();  // else the next call would report it
  if (why)
    *why = fmt::format("no CUDA device can be used: {}; is the driver installed, and does nvidia-smi list a card?",
                       cudaGetErrorString(status));
  return 0;
}

CudaDevice cuda_device_of(int rank) { return describe(device_of(rank)); }

std::vector<CudaDevice> cuda_devices(std::string* why) {
  std::vector<CudaDevice> devices;
  const int count = num_cuda_devices(why);
  for (int i = 0; i < count; ++i) {
    try {
      devices.push_back(describe(i));
    } catch (const Error& e) {
      cudaGetLastError();
      if (why) *why = fmt::format("device {} cannot be used: {}", i, e.what());
    }
  }
  return devices;
}

void use_cuda_device(int rank) { check_cuda(cudaSetDevice(device_of(rank)), "choose a device"); }

std::byte* allocate_on_cuda(size_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) == cudaSuccess) return static_cast<std::byte*>(data);
  cudaGetLastError();  // else the next call would report it
  return nullptr;
}

void free_on_cuda(std::byte* data) noexcept {
  StepGraphs::flush_this_thread();
  cudaFree(data);
}

void clear_on_cuda(std::byte* data, size_t bytes) {
  StepGraphs::flush_this_thread();
  check_cuda(cudaMemset(data, 0, bytes), "clear memory");
}

std::byte* allocate_pinned(size_t bytes) {
  void* data = nullptr;
  // For all devices of the process, whose ranks may come to share it.
  if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) == cudaSuccess) return static_cast<std::byte*>(data);
  cudaGetLastError();  // else the next call would report it
  return nullptr;
}

void free_pinned(std::byte* data) noexcept { cudaFreeHost(data); }

std::unique_ptr<DeviceQueue> make_cuda_queue() { return std::make_unique<CudaQueue>(); }
std::unique_ptr<DeviceTimer> make_cuda_timer(DeviceQueue& queue) { return std::make_unique<CudaTimer>(queue); }

}  // namespace weft
