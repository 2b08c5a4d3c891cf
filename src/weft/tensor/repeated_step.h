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

// Steps that go on with what a device found in the one before, before the host has read it: two may be on their way
// at once, so every other one is alike, and the third waits for the first. Work that is queued at once has memory of
// its own for what is told with it, which it reads later.
class StepTurns {
 public:
  // Of the next step, a number below kCount: 0 where all is known.
  static constexpr int64_t kCount = 3;
  int64_t next(bool goes_ahead) {
    is_second_ = goes_ahead && !is_second_;
    return !goes_ahead ? 0 : is_second_ ? 2 : 1;
  }

 private:
  bool is_second_ = false;
};

}  // namespace weft
