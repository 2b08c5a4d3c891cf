// ThreadTeam: rounds are announced by a generation counter and closed by a count of unfinished workers.
#include "weft/base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace weft {
namespace {

constexpr int kSpins = 4000;  // about 20 us of pauses before a thread goes to sleep

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until value differs from `old`, spinning first.
template <class T>
void wait_while_equal(std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a refusal costs speed only
}

}  // namespace

ThreadTeam::ThreadTeam(int size, std::vector<int> cpus) : size_(std::max(size, 1)) {
  if (!cpus.empty()) pin_this_thread(cpus[0]);
  for (int worker = 1; worker < size_; ++worker) {
    const int cpu = worker < int(cpus.size()) ? cpus[worker] : -1;
    threads_.emplace_back([this, worker, cpu] {
      if (cpu >= 0) pin_this_thread(cpu);
      work(worker);
    });
  }
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadTeam::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    wait_while_equal(generation_, seen);
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    run_body(worker);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

void ThreadTeam::run_body(int worker) {
  try {
    (*body_)(worker);
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadTeam::run(FunctionRef<void(int)> body) {
  if (size_ == 1) return body(0);
  body_ = &body;
  unfinished_.store(size_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  run_body(0);
  for (int left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) wait_while_equal(unfinished_, left);
  body_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadTeam::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body) {
  const int64_t chunks = (count + grain - 1) / grain;
  const auto run_chunk = [&](int64_t chunk, int worker) {
    body(chunk * grain, std::min(count, (chunk + 1) * grain), worker);
  };
  if (size_ == 1 || chunks <= 1) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) run_chunk(chunk, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int worker) {
    for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) run_chunk(chunk, worker);
  });
}

}  // namespace weft
