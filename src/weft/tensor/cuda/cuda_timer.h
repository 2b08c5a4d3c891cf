// CudaTimer: CUDA events with times, used again after every start.
#pragma once
#include <cuda_runtime.h>

#include "weft/tensor/device_queue.h"
#include "weft/tensor/device_timer.h"

namespace weft {

class CudaTimer final : public DeviceTimer {
 public:
  explicit CudaTimer(DeviceQueue& queue);
  ~CudaTimer() override;
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  void start() override;
  bool is_running() const override { return is_running_; }
  int64_t mark(void* queue) override;
  std::vector<int64_t> stop() override;

 private:
  cudaStream_t stream() const { return static_cast<cudaStream_t>(queue_.handle()); }

  DeviceQueue& queue_;
  cudaEvent_t origin_ = nullptr;
  int64_t origin_ns_ = 0;
  std::vector<cudaEvent_t> events_;  // as many as there were marks at most
  size_t used_ = 0;
  bool is_running_ = false;
};

}  // namespace weft
