// CUDA devices, by the CUDA runtime.
#include "weft/tensor/cuda/cuda_device.h"

#include "weft/tensor/cuda/check_cuda.h"
#include "weft/tensor/cuda/cuda_queue.h"
#include "weft/tensor/cuda/cuda_timer.h"

namespace weft {

bool has_cuda() { return true; }

std::vector<CudaDevice> cuda_devices(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (why && status != cudaSuccess)
    *why = fmt::format("no CUDA device can be used: {}; is the driver installed, and does nvidia-smi list a card?",
                       cudaGetErrorString(status));
  if (status != cudaSuccess) return {};
  std::vector<CudaDevice> devices;
  int before = 0;
  cudaGetDevice(&before);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp p{};
    size_t free = 0, total = 0;
    check_cuda(cudaGetDeviceProperties(&p, i), "ask a device what it is");
    check_cuda(cudaSetDevice(i), "choose a device");
    check_cuda(cudaMemGetInfo(&free, &total), "ask a device for its memory");
    devices.push_back({.name = p.name,
                       .total_bytes = int64_t(total),
                       .free_bytes = int64_t(free),
                       .num_multiprocessors = p.multiProcessorCount,
                       .compute_capability = 10 * p.major + p.minor});
  }
  cudaSetDevice(before);
  return devices;
}

void use_cuda_device(int rank) {
  std::string why;
  const int count = int(cuda_devices(&why).size());
  if (count == 0) throw Error("{}", why.empty() ? "this machine has no CUDA device" : why);
  check_cuda(cudaSetDevice(rank % count), "choose a device");
}

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
