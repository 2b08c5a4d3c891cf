// Watch: when a rank that waits for others gives them up.
#pragma once
#include <algorithm>
#include <chrono>
#include <span>

#include "weft/comm/rank_progress.h"
#include "weft/comm/signal.h"

namespace weft {

// The wait is hopeless once no rank that this one can see has shown a sign of life for `timeout`: whoever is only
// slow goes on making calls and running ops, and whoever waits for him waits for somebody alive. Ranks of other
// machines cannot be seen; for them the timeout is that of one wait. A patient rank never gives up. Signs of life are
// looked for many times within the timeout, so that it is counted from the last one, and not much longer.
class Watch {
 public:
  using Clock = Signal::Clock;

  // own: this rank's note; notes: those of all ranks, null where they cannot be seen. They outlive the watch.
  Watch(std::chrono::nanoseconds timeout, const RankProgress* own, std::span<const RankProgress* const> notes)
      : timeout_(timeout),
        own_(own),
        notes_(notes),
        deadline_(Clock::now() + timeout),
        next_look_(deadline_ - timeout + timeout / kLooks),
        life_(life()) {}

  bool is_over(Clock::time_point now) {
    if (now < next_look_) return false;
    const uint64_t seen = life();
    if (seen != life_ || (own_ && own_->is_patient())) deadline_ = now + timeout_;
    life_ = seen, next_look_ = std::min(now + timeout_ / kLooks, deadline_);
    return now >= deadline_;
  }
  // How long to sleep at most before is_over is asked again.
  std::chrono::nanoseconds left(Clock::time_point now) const {
    return std::max<std::chrono::nanoseconds>(next_look_ - now, std::chrono::microseconds(50));
  }
  double seconds() const { return std::chrono::duration<double>(timeout_).count(); }

 private:
  static constexpr int kLooks = 64;  // within the timeout: each reads the notes of all ranks of the machine

  uint64_t life() const {
    uint64_t sum = 0;
    for (const RankProgress* note : notes_)
      if (note) sum += note->pulse().load(std::memory_order_relaxed);
    return sum;
  }

  std::chrono::nanoseconds timeout_;
  const RankProgress* own_;
  std::span<const RankProgress* const> notes_;
  Clock::time_point deadline_, next_look_;
  uint64_t life_;
};

}  // namespace weft
