// The emulator of the runtime: devices, memory, and streams that run at once or are captured.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

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
struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
struct EmulatedStream {
  std::unique_ptr<EmulatedGraph> capture;  // while it captures
  bool is_invalid = false;
};
static thread_local EmulatedStream* capturing = nullptr;

// What may not be done while this thread captures.
static cudaError_t refuse_in_capture() {
  if (!capturing) return cudaSuccess;
  capturing->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t emulated::queue(cudaStream_t stream, std::function<void()> work) {
  if (!stream || !stream->capture) return work(), cudaSuccess;
  if (stream->is_invalid) return cudaErrorStreamCaptureInvalidated;
  stream->capture->work.push_back(std::move(work));
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!stream || capturing) return cudaErrorStreamCaptureUnsupported;
  capturing = stream;
  stream->capture = std::make_unique<EmulatedGraph>(), stream->is_invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream || capturing != stream) return cudaErrorStreamCaptureUnsupported;
  capturing = nullptr;
  const std::unique_ptr<EmulatedGraph> captured = std::move(stream->capture);
  if (stream->is_invalid) return cudaErrorStreamCaptureInvalidated;
  *graph = new EmulatedGraph(std::move(*captured));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  const char* const asked = std::getenv("WEFT_EMULATED_NO_GRAPHS");
  if (asked && std::string_view(asked) != "launch") return cudaErrorMemoryAllocation;
  *ready = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const char* const asked = std::getenv("WEFT_EMULATED_NO_GRAPHS");
  if (asked && std::string_view(asked) == "launch") return cudaErrorMemoryAllocation;
  for (const auto& work : graph->work) emulated::queue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, cudaSuccess; }

cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (const cudaError_t refused = refuse_in_capture(); refused != cudaSuccess) return *p = nullptr, refused;
  *p = Arena::instance().allocate(bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* p) { return Arena::instance().release(p), cudaSuccess; }

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
  void count_copy(const void* host, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(host);
    const std::lock_guard lock(mutex_);
    auto it = blocks_.upper_bound(const_cast<std::byte*>(begin));
    const bool is_in_one = it != blocks_.begin() && (--it, begin + bytes <= it->first + it->second.bytes);
    num_pageable_copies_ += !is_in_one;
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

int64_t emulated::num_pageable_copies() { return Pinned::instance().num_pageable_copies(); }
cudaError_t cudaMallocHost(void** p, size_t bytes) { return Pinned::instance().allocate(p, bytes, false); }
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) { return Pinned::instance().allocate(p, bytes, true); }
cudaError_t cudaFreeHost(void* p) { return Pinned::instance().release(p), cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = new EmulatedStream, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return stream && stream->capture ? refuse_in_capture() : cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
struct EmulatedEvent {
  unsigned flags;
  std::atomic<int64_t> ns{-1};  // when it was recorded last, which is when all before it was done
};
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return *event = new EmulatedEvent{flags}, cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  event->ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  for (const EmulatedEvent* event : {begin, end})
    if (event->ns < 0 || (event->flags & cudaEventDisableTiming)) return cudaErrorInvalidResourceHandle;
  *ms = float(double(end->ns - begin->ns) * 1e-6);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDeviceToDevice)
    Pinned::instance().count_copy(kind == cudaMemcpyHostToDevice ? from : to, bytes);
  return emulated::queue(stream, [=] {
    const Arena::Open open(Arena::instance());
    if (bytes) std::memmove(to, from, bytes);
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row)
    cudaMemcpyAsync(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width,
                    kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  const Arena::Open open(Arena::instance());
  std::memset(p, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return emulated::queue(stream, [=] { cudaMemset(p, value, bytes); });
}
