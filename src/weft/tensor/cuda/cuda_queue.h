// CudaQueue: a CUDA stream with pinned memory through which bytes of the host travel.
#pragma once
#include <cuda_runtime.h>

#include <array>

#include "weft/tensor/device_queue.h"

namespace weft {

// Uploads go through a ring of segments; a segment is used again when the work that was queued while it was the
// newest is done.
class CudaQueue final : public DeviceQueue {
 public:
  CudaQueue();
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void* handle() const override { return stream_; }
  void copy_to_device(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;
  void copy_rows_on_device(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                           size_t rows) override;
  void clear(void* to, size_t bytes) override;
  const void* upload(const void* from, size_t bytes) override;
  void wait() override;

 private:
  static constexpr size_t kSegmentBytes = size_t(2) << 20;
  static constexpr size_t kNumSegments = 5;  // the newest, and the 8 MiB before it

  struct Segment {
    std::byte *pinned = nullptr, *device = nullptr;
    size_t capacity = 0, used = 0;
    cudaEvent_t left = nullptr;  // recorded when the ring went on
    bool was_left = false;
  };
  struct Piece {
    std::byte *pinned, *device;
  };
  Piece take(size_t bytes);
  void free_memory(Segment& segment) noexcept;

  cudaStream_t stream_ = nullptr;
  std::array<Segment, kNumSegments> ring_;
  size_t newest_ = 0;
};

}  // namespace weft
