// The emulator of kernels: a block's threads as fibers.
#include <sys/mman.h>
#include <ucontext.h>

#include <csetjmp>
#include <memory>
#include <vector>

#include "arena.h"
#include "cuda_runtime.h"

namespace emulated {
namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr int kLanes = 32;

class Stack {
 public:
  Stack() {
    p_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    weft::check(p_ != MAP_FAILED, "no memory for an emulated thread");
  }
  ~Stack() { munmap(p_, kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* data() const { return p_; }

 private:
  void* p_;
};

// Begun once by its context; after that it comes and goes by jumps, which ask the system for nothing.
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  Stack stack;
  bool has_begun = false;
};

// A thread of the block: begun on a fiber that is free, and on that one until it ends.
struct Thread {
  enum class State : uint8_t { not_begun, ready, at_block_barrier, at_warp_barrier, finished };
  State state = State::not_begun;
  int index = 0;
  Fiber* fiber = nullptr;
};

struct Warp {
  int live = 0, arrived = 0;
  uint64_t given[kLanes] = {};
  bool is_live[kLanes] = {};
  alignas(16) std::byte memory[4096];
};

// What runs one block after another on one thread of the host.
class Machine {
 public:
  static Machine& of_this_thread() {
    static thread_local Machine machine;
    return machine;
  }

  void run(dim3 grid, dim3 block, bool follows, const std::function<void()>& body) {
    const int threads = int(block.x * block.y * block.z);
    weft::check(threads >= 1 && threads <= 1024, "a block of {} threads cannot be launched", threads);
    weft::check(grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.y <= 65535 && grid.z <= 65535 && grid.x < 1u << 31,
                "a grid of {} x {} x {} blocks cannot be launched", grid.x, grid.y, grid.z);
    body_ = &body, num_threads_ = threads, num_following_ = 0;
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) run_block({x, y, z}, grid, block);
    const int64_t all = int64_t(grid.x) * grid.y * grid.z * threads;
    weft::check(!follows || num_following_ == all, "{} of {} threads of a kernel wait for the kernel that it follows",
                num_following_, all);
  }

  void follow() { ++num_following_; }

  int lane() const { return current_->index % kLanes; }
  Warp& warp() { return warps_[size_t(current_->index / kLanes)]; }

  void wait(Thread::State barrier) {
    current_->state = barrier;
    if (barrier == Thread::State::at_warp_barrier) {
      ++warp().arrived;
      open_warp(current_->index / kLanes);
    } else {
      ++arrived_;
      open_block();
    }
    if (current_->state != Thread::State::ready) leave();
  }

 private:
  void run_block(uint3 at, dim3 grid, dim3 block) {
    blockIdx = at, blockDim = block, gridDim = grid;
    warps_.assign(size_t(num_threads_ + kLanes - 1) / kLanes, Warp());
    live_ = num_threads_, arrived_ = 0;
    threads_.assign(size_t(num_threads_), Thread());
    for (int i = 0; i < num_threads_; ++i) {
      threads_[size_t(i)].index = i;
      Warp& w = warps_[size_t(i / kLanes)];
      ++w.live, w.is_live[i % kLanes] = true;
    }
    while (live_ > 0) {
      bool has_moved = false;
      is_backwards_ = !is_backwards_;  // a barrier that is missing shows whichever thread should wait
      for (int turn = 0; turn < num_threads_; ++turn) {
        Thread& thread = in_turn(turn);
        if (thread.state != Thread::State::not_begun && thread.state != Thread::State::ready) continue;
        has_moved = true;
        turn_ = turn;
        if (thread.state == Thread::State::not_begun) prepare(thread);
        become(thread);
        enter(*thread.fiber);
        if (current_->state == Thread::State::finished) free_.push_back(current_->fiber);
      }
      // Undefined on a GPU, where it hangs.
      weft::check(has_moved, "{} threads of a block wait at barriers that others do not reach", live_);
    }
  }

  Thread& in_turn(int turn) { return threads_[size_t(is_backwards_ ? num_threads_ - 1 - turn : turn)]; }
  void become(Thread& thread) {
    const unsigned t = unsigned(thread.index);
    current_ = &thread, thread.state = Thread::State::ready;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
  }
  void prepare(Thread& thread) {
    if (free_.empty()) free_.push_back(fibers_.emplace_back(std::make_unique<Fiber>()).get());
    Fiber& fiber = *free_.back();
    free_.pop_back();
    thread.fiber = &fiber;
    if (fiber.has_begun) return;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = kStackBytes;
    makecontext(&fiber.context, &Machine::begin, 0);
  }

  // A fiber whose thread has ended goes on with the next one that has not begun: only what waits costs a switch.
  static void begin() {
    Machine& m = of_this_thread();
    for (;;) {
      (*m.body_)();
      m.finish();
      if (!m.next_thread()) m.leave();
    }
  }
  bool next_thread() {
    for (int turn = turn_ + 1; turn < num_threads_; ++turn) {
      Thread& next = in_turn(turn);
      if (next.state != Thread::State::not_begun) continue;
      next.fiber = current_->fiber;
      turn_ = turn;
      become(next);
      return true;
    }
    return false;
  }
  void finish() {
    Thread& thread = *current_;
    thread.state = Thread::State::finished;
    Warp& w = warp();
    --w.live, w.is_live[thread.index % kLanes] = false;
    --live_;
    open_warp(thread.index / kLanes);
    open_block();
  }
  void enter(Fiber& fiber) {
    if (_setjmp(scheduler_) != 0) return;
    if (std::exchange(fiber.has_begun, true)) _longjmp(fiber.place, 1);
    setcontext(&fiber.context);
  }
  void leave() {
    if (_setjmp(current_->fiber->place) == 0) _longjmp(scheduler_, 1);
  }

  void open_warp(int index) {
    Warp& w = warps_[size_t(index)];
    if (w.arrived == 0 || w.arrived < w.live) return;
    w.arrived = 0;
    release(index * kLanes, std::min(num_threads_, (index + 1) * kLanes), Thread::State::at_warp_barrier);
  }
  void open_block() {
    if (arrived_ == 0 || arrived_ < live_) return;
    arrived_ = 0;
    release(0, num_threads_, Thread::State::at_block_barrier);
  }
  void release(int begin, int end, Thread::State barrier) {
    for (int i = begin; i < end; ++i)
      if (threads_[size_t(i)].state == barrier) threads_[size_t(i)].state = Thread::State::ready;
  }

  jmp_buf scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Thread* current_ = nullptr;
  int turn_ = 0;  // of the loop over threads
  const std::function<void()>* body_ = nullptr;
  int num_threads_ = 0, live_ = 0, arrived_ = 0;
  int64_t num_following_ = 0;
  bool is_backwards_ = true;
};

}  // namespace

int lane() { return Machine::of_this_thread().lane(); }
void sync_block() { Machine::of_this_thread().wait(Thread::State::at_block_barrier); }
void sync_warp() { Machine::of_this_thread().wait(Thread::State::at_warp_barrier); }

uint64_t exchange(uint64_t mine, int from_lane) {
  Warp& w = Machine::of_this_thread().warp();
  w.given[lane()] = mine;
  sync_warp();
  const uint64_t theirs = w.given[w.is_live[from_lane] ? from_lane : lane()];
  sync_warp();
  return theirs;
}

bool any_of_warp(bool mine) {
  Warp& w = Machine::of_this_thread().warp();
  w.given[lane()] = mine;
  sync_warp();
  bool any = false;
  for (int i = 0; i < kLanes; ++i) any |= w.is_live[i] && w.given[i];
  sync_warp();
  return any;
}

void* warp_memory(size_t bytes) {
  weft::check(bytes <= sizeof(Warp::memory), "a warp has no {} bytes", bytes);
  return Machine::of_this_thread().warp().memory;
}

void run_grid(dim3 grid, dim3 block, bool follows, const std::function<void()>& body) {
  const Arena::Open open(Arena::instance());
  Machine::of_this_thread().run(grid, block, follows, body);
}
void follow() { Machine::of_this_thread().follow(); }

}  // namespace emulated
