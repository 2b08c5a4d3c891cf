// CudaTimer: times of events relative to one whose time the host knows.
#include "weft/tensor/cuda/cuda_timer.h"

#include <chrono>
#include <cmath>

#include "weft/tensor/cuda/check_cuda.h"

namespace weft {
namespace {

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "make an event");
  return event;
}

}  // namespace

CudaTimer::CudaTimer(DeviceQueue& queue) : queue_(queue), origin_(make_event()) {}

CudaTimer::~CudaTimer() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaEventDestroy(origin_);
}

void CudaTimer::start() {
  used_ = 0;
  queue_.wait();
  const int64_t before = now_ns();
  check_cuda(cudaEventRecord(origin_, stream()), "record an event");
  queue_.wait();
  origin_ns_ = before + (now_ns() - before) / 2;  // wrong by less than the microseconds that an empty queue takes
  is_running_ = true;
}

int64_t CudaTimer::mark(void* queue) {
  if (used_ == events_.size()) events_.push_back(make_event());
  check_cuda(cudaEventRecord(events_[used_], queue ? static_cast<cudaStream_t>(queue) : stream()), "record an event");
  return int64_t(used_++);
}

std::vector<int64_t> CudaTimer::stop() {
  queue_.wait();
  std::vector<int64_t> times(used_);
  for (size_t i = 0; i < used_; ++i) {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, origin_, events_[i]), "tell the time of an event");
    times[i] = origin_ns_ + std::llround(double(ms) * 1e6);
  }
  used_ = 0, is_running_ = false;
  return times;
}

}  // namespace weft
