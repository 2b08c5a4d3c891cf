// CudaQueue: a CUDA stream with pinned memory through which bytes of the host travel.
#pragma once
#include <cuda_runtime.h>

#include <array>

#include "weft/tensor/cuda/step_graphs.h"
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

  void* handle() const override {
    steps_->flush();
    return stream_;
  }
  // For work that can be held back and queued by a graph.
  StepGraphs& steps() { return *steps_; }
  cudaStream_t stream() const { return stream_; }  // outside of steps

  void copy_to_device(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;
  void copy_rows_on_device(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                           size_t rows) override;
  void clear(void* to, size_t bytes) override;
  const void* upload(const void* from, size_t bytes) override;
  void wait() override;
  std::unique_ptr<Point> make_point() override;
  void start_copy_to_device(void* to, const void* pinned, size_t bytes) override;
  void start_copy_to_host(void* pinned, const void* from, size_t bytes) override;
  void follow(const DeviceQueue& other) override;
  void begin_step(uint64_t key) override { steps_->begin(key); }
  void end_step(bool has_failed) override { has_failed ? steps_->drop() : steps_->end(); }

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
  class EventPoint;

  // Until query() says that something is done, looking around meanwhile.
  void wait_until(cudaError_t (*query)(void*), void* of) const;
  void wait_for(cudaEvent_t event) const;
  // Queues what is told by these numbers, of which the first says what it is.
  template <class Issue, class... Numbers>
  void add(const Issue& issue, const Numbers&... numbers) {
    if (!steps_->is_in_step()) return issue(stream_);
    OpBytes& description = steps_->description();
    (description.add(numbers), ...);
    steps_->add(issue);
  }
  Piece take(size_t bytes);
  void free_memory(Segment& segment) noexcept;

  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t followed_ = nullptr;  // recorded in the queue that is followed
  std::array<Segment, kNumSegments> ring_;
  size_t newest_ = 0;
  std::unique_ptr<StepGraphs> steps_;
};

}  // namespace weft
