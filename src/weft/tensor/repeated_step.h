// RepeatedStep: from here to the end of the scope a stream's work is likely to be that of an earlier step.
#pragma once
#include <exception>

#include "weft/tensor/stream.h"

namespace weft {

// On a device such work may be queued at once; on the CPU this does nothing. Steps do not nest.
class RepeatedStep {
 public:
  // Of one owner, those of as many rows are alike. rows: 0 for a step that is like no other.
  RepeatedStep(Stream& stream, const void* owner, int64_t rows)
      : queue_(rows > 0 && stream.allocator().device() == Device::cuda ? &stream.queue() : nullptr),
        exceptions_(std::uncaught_exceptions()) {
    constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;
    if (queue_) queue_->begin_step(reinterpret_cast<uintptr_t>(owner) * kMix + uint64_t(rows));
  }
  ~RepeatedStep() noexcept(false) {
    if (queue_) queue_->end_step(std::uncaught_exceptions() > exceptions_);
  }
  RepeatedStep(const RepeatedStep&) = delete;
  RepeatedStep& operator=(const RepeatedStep&) = delete;

 private:
  DeviceQueue* queue_;  // null: nothing is to be done
  int exceptions_;
};

}  // namespace weft
