// Signal: lets threads or processes sleep until another one changes shared memory, spinning first.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// May lie in memory shared between processes. The change itself is made in other atomics; `raise` follows it.
class Signal {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kSpin{20};  // about what a futex takes to wake a sleeper

  void raise() {
    value_.fetch_add(1);
    if (sleepers_.load()) syscall(SYS_futex, &value_, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }

  // Returns when ready() holds, which may be asked again after it did. While asleep, calls before_sleep(), which may
  // throw and returns how long to sleep at most. With `spins` false (more ranks than cores) gives the core away
  // instead of spinning on it.
  template <class Ready, class BeforeSleep>
  void wait(bool spins, Ready ready, BeforeSleep before_sleep) {
    if (ready()) return;
    const auto asleep_at = Clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return;
        if (spins)
          pause_cpu();
        else if (i % 8 == 0)
          sched_yield();
      }
    } while (Clock::now() < asleep_at);
    for (;;) {
      const uint32_t seen = value_.load();
      if (ready()) return;
      const std::chrono::nanoseconds at_most = before_sleep();
      sleepers_.fetch_add(1);
      if (!ready()) sleep(seen, at_most);
      sleepers_.fetch_sub(1);
      if (ready()) return;
    }
  }

 private:
  void sleep(uint32_t seen, std::chrono::nanoseconds at_most) {
    timespec limit{};
    limit.tv_sec = at_most.count() / 1'000'000'000;
    limit.tv_nsec = at_most.count() % 1'000'000'000;
    syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

}  // namespace weft
