// The emulator of the runtime: devices and memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "arena.h"
#include "cuda_runtime.h"

namespace {
using emulated::Arena;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
// One memory, whichever device a thread has chosen.
static thread_local int chosen_device = 0;

cudaError_t cudaGetDeviceCount(int* count) {
  const char* const asked = std::getenv("WEFT_EMULATED_DEVICES");
  *count = asked ? std::atoi(asked) : 1;
  return cudaSuccess;
}
static int emulated_capability() {
  const char* const asked = std::getenv("WEFT_EMULATED_CAPABILITY");
  return asked ? std::atoi(asked) : 90;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? emulated_capability() / 10 : emulated_capability() % 10;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  const char* const asked = std::getenv("WEFT_EMULATED_NAME");
  const int capability = emulated_capability();
  *p = {"", size_t(2) << 30, 1, capability / 10, capability % 10};
  std::snprintf(p->name, sizeof(p->name), "%s", asked ? asked : "emulated");
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return chosen_device = device, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = chosen_device, cudaSuccess; }
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, size_t(length), "0000:%02x:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = size_t(2) << 30, cudaSuccess; }
cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (const cudaError_t refused = emulated::refuse_in_capture(); refused != cudaSuccess) return *p = nullptr, refused;
  const char* const largest = std::getenv("WEFT_EMULATED_LARGEST_BLOCK");  // that the device has left
  if (largest && bytes > size_t(std::atoll(largest))) return *p = nullptr, cudaErrorMemoryAllocation;
  *p = Arena::instance().allocate(bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* p) {
  emulated::finish_streams();
  return Arena::instance().release(p), cudaSuccess;
}

namespace {

// Pinned memory of the host, by address.
class Pinned {
 public:
  static Pinned& instance() {
    static Pinned pinned;
    return pinned;
  }
  cudaError_t allocate(void** p, size_t bytes, bool is_limited) {
    const char* const asked = is_limited ? std::getenv("WEFT_EMULATED_PINNED_BYTES") : nullptr;
    const std::lock_guard lock(mutex_);
    if (asked && limited_bytes_ + bytes > size_t(std::atoll(asked))) return cudaErrorMemoryAllocation;
    if (is_limited) limited_bytes_ += bytes;
    *p = std::malloc(bytes);
    blocks_[static_cast<std::byte*>(*p)] = {bytes, is_limited};
    return cudaSuccess;
  }
  void release(void* p) {
    if (!p) return;
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(static_cast<std::byte*>(p));
    if (it == blocks_.end()) std::abort();  // freed twice, or never pinned
    if (it->second.is_limited) limited_bytes_ -= it->second.bytes;
    blocks_.erase(it);
    std::free(p);
  }
  // Whether it is pinned.
  bool count_copy(const void* host, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(host);
    const std::lock_guard lock(mutex_);
    auto it = blocks_.upper_bound(const_cast<std::byte*>(begin));
    const bool is_in_one = it != blocks_.begin() && (--it, begin + bytes <= it->first + it->second.bytes);
    num_pageable_copies_ += !is_in_one;
    return is_in_one;
  }
  int64_t num_pageable_copies() const {
    const std::lock_guard lock(mutex_);
    return num_pageable_copies_;
  }

 private:
  struct Block {
    size_t bytes;
    bool is_limited;
  };
  mutable std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
  size_t limited_bytes_ = 0;
  int64_t num_pageable_copies_ = 0;
};

}  // namespace

bool emulated::count_copy(const void* host, size_t bytes) { return Pinned::instance().count_copy(host, bytes); }
int64_t emulated::num_pageable_copies() { return Pinned::instance().num_pageable_copies(); }
cudaError_t cudaMallocHost(void** p, size_t bytes) { return Pinned::instance().allocate(p, bytes, false); }
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) { return Pinned::instance().allocate(p, bytes, true); }
cudaError_t cudaFreeHost(void* p) { return Pinned::instance().release(p), cudaSuccess; }
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  emulated::finish_streams();
  const Arena::Open open(Arena::instance());
  std::memset(p, value, bytes);
  return cudaSuccess;
}
