// ThreadTeam: rounds are announced by a generation counter and closed by a count of unfinished workers. What is left
// of a worker's share of chunks is one word, of which its owner takes the first and others the last.
#include "weft/base/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <limits>

#include "weft/base/ceil_div.h"
#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int kSpins = 4000;  // some 100 us of pauses before a thread goes to sleep
constexpr int kYieldEvery = 64;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until value differs from `old`, spinning first. meanwhile() does a little and gives false when all is done.
template <class T, class Meanwhile>
void wait_while_equal(std::atomic<T>& value, T old, Meanwhile&& meanwhile) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    if (meanwhile()) continue;
    pause_cpu();
    if (i % kYieldEvery == kYieldEvery - 1) sched_yield();  // to another thread, if one waits for this core
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// [0, length) in chunks of `grain`, the last one shorter.
class Chunks {
 public:
  using Body = FunctionRef<void(int64_t begin, int64_t end, int worker)>;
  Chunks(int64_t length, int64_t grain) : length_(length), grain_(grain), count_(ceil_div(length, grain)) {}
  int64_t count() const { return count_; }
  void run(int64_t chunk, int worker, const Body& body) const {
    body(chunk * grain_, std::min(length_, (chunk + 1) * grain_), worker);
  }
  void run_all(const Body& body) const {
    for (int64_t chunk = 0; chunk < count_; ++chunk) run(chunk, 0, body);
  }

 private:
  int64_t length_, grain_, count_;
};

void pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a refusal costs speed only
}

}  // namespace

ThreadTeam::ThreadTeam(int size, std::vector<int> cpus)
    : size_(std::max(size, 1)), shares_(size_t(size_)), read_order_(size_) {
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
  Fetch fetch;
  for (;;) {
    wait_while_equal(generation_, seen, [&] { return fetch.step(); });
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    run_body(worker);
    fetch.set(read_rounds_, next_reads_ ? next_reads_[worker] : nullptr);
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
  for (int left; (left = unfinished_.load(std::memory_order_acquire)) != 0;)
    wait_while_equal(unfinished_, left, [] { return false; });
  body_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadTeam::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body) {
  const Chunks chunks(count, grain);
  if (size_ == 1 || chunks.count() <= 1) return chunks.run_all(body);
  std::atomic<int64_t> next{0};
  run([&](int worker) {
    for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks.count();)
      chunks.run(chunk, worker, body);
  });
}

void ThreadTeam::parallel_runs(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body,
                               FunctionRef<const void*(int64_t)> reads) {
  const Chunks chunks(count, grain);
  if (size_ == 1 || chunks.count() <= 1) return chunks.run_all(body);
  check(chunks.count() <= std::numeric_limits<uint32_t>::max(), "parallel_runs: {} chunks are too many",
        chunks.count());
  const auto first_of = [&](int worker) { return chunks.count() * worker / size_; };
  for (int i = 0; i < size_; ++i) shares_[size_t(i)].set(first_of(i), first_of(i + 1));
  next_reads_ = read_order_.begin([&](int worker) { return reads(first_of(worker) * grain); });
  ++read_rounds_;
  run([&](int worker) {
    int64_t first = 0, end = 0;
    const auto run_taken = [&] {
      for (int64_t chunk = first; chunk < end; ++chunk) chunks.run(chunk, worker, body);
    };
    while (shares_[size_t(worker)].take_front(first, end)) run_taken();
    for (int i = worker + 1; i < worker + size_; ++i) {
      while (shares_[size_t(i % size_)].take_back(first, end)) run_taken();
    }
  });
}

void ThreadTeam::Fetch::set(uint64_t round, const std::byte* from) {
  if (std::exchange(round_, round) == round) return;
  constexpr int64_t kBytes = 192 << 10;  // what a core reads in some microseconds, and its second cache holds
  at_ = from, end_ = from ? from + kBytes : nullptr;
}

bool ThreadTeam::Fetch::step() {
  if (at_ == end_) return false;
  for (const std::byte* const end = at_ + 128; at_ != end; at_ += 64) __builtin_prefetch(at_, 0, 2);
  return true;
}

void ThreadTeam::Share::set(int64_t begin, int64_t end) {
  left_.store(uint64_t(begin) | uint64_t(end) << 32, std::memory_order_relaxed);
}

// A quarter of what is left: taking holds the loads up that are under way, so it should be rare, and what is taken
// last should be little.
bool ThreadTeam::Share::take(bool from_front, int64_t& first, int64_t& end) {
  uint64_t left = left_.load(std::memory_order_relaxed), now = 0;
  do {
    const auto begin = int64_t(uint32_t(left)), stop = int64_t(left >> 32),
               count = ceil_div(stop - begin, int64_t(4));
    if (count <= 0) return false;
    first = from_front ? begin : stop - count, end = first + count;
    now = from_front ? left + uint64_t(count) : left - (uint64_t(count) << 32);
  } while (!left_.compare_exchange_weak(left, now, std::memory_order_relaxed));
  return true;
}

}  // namespace weft
