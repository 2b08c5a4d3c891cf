// CommQueue: a communicator's thread, which runs started collectives in the order they were started.
#pragma once
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/comm/signal.h"

namespace weft {

// One thread pushes and waits. Nothing here allocates after construction.
class CommQueue {
 public:
  // With `spins` false (more ranks than cores) both threads give the core away while they wait.
  CommQueue(std::function<void(const Collective&)> run, bool spins);
  ~CommQueue();  // after all that was pushed has run
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // Returns a ticket to wait for. Waits itself while kCapacity collectives are queued.
  uint32_t push(const Collective& call);

  // Throws what the collective threw; when an earlier one failed, it was not run and this throws that failure.
  void wait(uint32_t ticket);
  // The same; look_around is called now and then meanwhile, and may end it by what it throws.
  void wait(uint32_t ticket, FunctionRef<void()> look_around);
  // Of a ticket that it gave: whether the call was run, or not run because one has failed.
  bool is_done(uint32_t ticket) const { return int32_t(done_.load(std::memory_order_acquire) - ticket) >= 0; }

  // Nothing is queued or running, and nothing has failed.
  bool is_idle() const {
    return done_.load(std::memory_order_acquire) == pushed_.load(std::memory_order_relaxed) &&
           !has_failed_.load(std::memory_order_acquire);
  }

 private:
  static constexpr uint32_t kCapacity = 256;
  void work();
  void wait_until_done(uint32_t ticket);
  void throw_failure(uint32_t ticket);

  std::function<void(const Collective&)> run_;
  const bool spins_;
  std::array<Collective, kCapacity> ring_;
  std::atomic<uint32_t> pushed_{0}, done_{0};  // tickets, which may wrap around
  std::atomic<bool> stop_{false}, has_failed_{false};
  uint32_t failed_ticket_ = 0;
  std::exception_ptr failure_;
  Signal pushed_signal_, done_signal_;
  std::thread thread_;
};

}  // namespace weft
