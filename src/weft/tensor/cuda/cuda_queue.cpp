// CudaQueue: pinned segments in a ring.
#include "weft/tensor/cuda/cuda_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "weft/base/ceil_div.h"
#include "weft/tensor/cuda/check_cuda.h"

namespace weft {
namespace {

// What records of steps call copies; no kernel has such an address.
enum class Work : uint64_t { copy = 2, copy_rows, clear };

constexpr const char* kFinish = "finish what was queued";

}  // namespace

CudaQueue::CudaQueue() {
  check_cuda(cudaGetDevice(&device_), "tell its device");
  // Ordered with the default stream, on which allocators clear what they hand out.
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamDefault), "make a stream");
  check_cuda(cudaEventCreateWithFlags(&followed_, cudaEventDisableTiming), "make an event");
  for (Segment& s : ring_) check_cuda(cudaEventCreateWithFlags(&s.left, cudaEventDisableTiming), "make an event");
  steps_ = std::make_unique<StepGraphs>(stream_, [this](cudaEvent_t event) { wait_for(event); });
}

CudaQueue::~CudaQueue() {
  cudaStreamSynchronize(stream_);
  steps_.reset();
  for (Segment& s : ring_) {
    free_memory(s);
    cudaEventDestroy(s.left);
  }
  cudaEventDestroy(followed_);
  cudaStreamDestroy(stream_);
}

void CudaQueue::free_memory(Segment& s) noexcept {
  cudaFreeHost(s.pinned);
  cudaFree(s.device);
  s.pinned = s.device = nullptr;
  s.capacity = s.used = 0;
}

CudaQueue::Piece CudaQueue::take(size_t bytes) {
  const size_t rounded = size_t(round_up(int64_t(bytes), 256));
  if (ring_[newest_].used + rounded > ring_[newest_].capacity) {
    Segment& full = ring_[newest_];
    check_cuda(cudaEventRecord(full.left, stream_), "record an event");
    full.was_left = true;
    newest_ = (newest_ + 1) % kNumSegments;
    Segment& next = ring_[newest_];
    if (next.was_left) wait_for(next.left);
    next.used = 0;
    if (next.capacity < rounded) {
      check_cuda(cudaSetDevice(device_), "choose a device");  // of the calling thread, which may be a helper
      free_memory(next);
      const size_t capacity = std::max(kSegmentBytes, rounded);
      void *pinned = nullptr, *device = nullptr;
      check_cuda(cudaMallocHost(&pinned, capacity), "pin memory of the host");
      next.pinned = static_cast<std::byte*>(pinned);
      check_cuda(cudaMalloc(&device, capacity), "allocate memory for uploads");
      next.device = static_cast<std::byte*>(device);
      next.capacity = capacity;
    }
  }
  Segment& s = ring_[newest_];
  const Piece piece{s.pinned + s.used, s.device + s.used};
  s.used += rounded;
  return piece;
}

void CudaQueue::copy_to_device(void* to, const void* from, size_t bytes) {
  steps_->flush();
  for (size_t at = 0; at < bytes; at += kSegmentBytes) {
    const size_t part = std::min(bytes - at, kSegmentBytes);
    std::byte* const pinned = take(part).pinned;
    std::memcpy(pinned, static_cast<const std::byte*>(from) + at, part);
    check_cuda(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, pinned, part, cudaMemcpyHostToDevice, stream_),
               "copy to the device");
  }
}

void CudaQueue::copy_to_host(void* to, const void* from, size_t bytes) {
  steps_->flush();
  for (size_t at = 0; at < bytes; at += kSegmentBytes) {
    const size_t part = std::min(bytes - at, kSegmentBytes);
    std::byte* const pinned = take(part).pinned;
    check_cuda(
        cudaMemcpyAsync(pinned, static_cast<const std::byte*>(from) + at, part, cudaMemcpyDeviceToHost, stream_),
        "copy to the host");
    wait();
    std::memcpy(static_cast<std::byte*>(to) + at, pinned, part);
  }
}

void CudaQueue::copy_on_device(void* to, const void* from, size_t bytes) {
  const auto copy = [=](cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copy on the device");
  };
  add(copy, Work::copy, to, from, bytes);
}

void CudaQueue::copy_rows_on_device(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                                    size_t rows) {
  const auto copy = [=](cudaStream_t stream) {
    check_cuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDeviceToDevice, stream),
               "copy rows on the device");
  };
  add(copy, Work::copy_rows, to, to_pitch, from, from_pitch, row_bytes, rows);
}

void CudaQueue::clear(void* to, size_t bytes) {
  const auto clear = [=](cudaStream_t stream) { check_cuda(cudaMemsetAsync(to, 0, bytes, stream), "clear memory"); };
  add(clear, Work::clear, to, bytes);
}

const void* CudaQueue::upload(const void* from, size_t bytes) {
  if (steps_->is_in_step())
    if (const void* const recorded = steps_->upload(from, bytes)) return recorded;
  const Piece piece = take(bytes);
  if (bytes) std::memcpy(piece.pinned, from, bytes);
  check_cuda(cudaMemcpyAsync(piece.device, piece.pinned, bytes, cudaMemcpyHostToDevice, stream_), "upload");
  return piece.device;
}

void CudaQueue::start_copy_to_device(void* to, const void* pinned, size_t bytes) {
  steps_->flush();
  check_cuda(cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, stream_), "copy to the device");
}

void CudaQueue::start_copy_to_host(void* pinned, const void* from, size_t bytes) {
  steps_->flush();
  check_cuda(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost, stream_), "copy to the host");
}

void CudaQueue::follow(const DeviceQueue& other) {
  steps_->flush();
  check_cuda(cudaEventRecord(followed_, static_cast<cudaStream_t>(other.handle())), "record an event");
  check_cuda(cudaStreamWaitEvent(stream_, followed_, 0), "wait for another stream");
}

void CudaQueue::wait() {
  steps_->flush();
  if (!is_watched()) return check_cuda(cudaStreamSynchronize(stream_), kFinish);
  wait_until([](void* of) { return cudaStreamQuery(static_cast<cudaStream_t>(of)); }, stream_);
}

void CudaQueue::wait_until(cudaError_t (*query)(void*), void* of) const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kLookAround{20};
  constexpr std::chrono::microseconds kSpin{200}, kNap{50};
  const auto begin = Clock::now();
  for (auto looked = begin;;) {
    const cudaError_t status = query(of);
    if (status != cudaErrorNotReady) return check_cuda(status, kFinish);
    cudaGetLastError();  // else it would stay for whoever asks next
    const auto now = Clock::now();
    if (now - begin > kSpin) std::this_thread::sleep_for(kNap);
    if (now - looked < kLookAround) continue;
    look_around();
    looked = now;
  }
}

void CudaQueue::wait_for(cudaEvent_t event) const {
  if (!is_watched()) return check_cuda(cudaEventSynchronize(event), kFinish);
  wait_until([](void* of) { return cudaEventQuery(static_cast<cudaEvent_t>(of)); }, event);
}

class CudaQueue::EventPoint final : public Point {
 public:
  explicit EventPoint(CudaQueue& queue) : queue_(queue) {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "make an event");
  }
  ~EventPoint() override { cudaEventDestroy(event_); }
  EventPoint(const EventPoint&) = delete;
  EventPoint& operator=(const EventPoint&) = delete;

  void set() override {
    queue_.steps_->flush();
    check_cuda(cudaEventRecord(event_, queue_.stream_), "record an event");
  }
  void wait() override { queue_.wait_for(event_); }

 private:
  CudaQueue& queue_;
  cudaEvent_t event_ = nullptr;
};

std::unique_ptr<DeviceQueue::Point> CudaQueue::make_point() { return std::make_unique<EventPoint>(*this); }

}  // namespace weft
