// The emulator of kernels: a block's threads as fibers.
#include <sys/mman.h>
#include <ucontext.h>

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

// Where somebody goes on: what the compiler's own jumps keep, which is less than what the C library's do.
using Place = void* [5];
[[noreturn, gnu::noinline]] void go_on_at(Place& place) { __builtin_longjmp(place, 1); }

// Begun once by its context; after that it comes and goes by jumps, which ask the system for nothing.
struct Fiber {
  ucontext_t context;
  Place place;
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
  // What lanes gave before a barrier, for all to read until the next one opens; the lanes that gave as bits.
  struct Gifts {
    uint32_t givers;
    uint64_t values[kLanes];
  };
  int live, arrived;
  int turn;  // which gifts are being given
  Gifts gifts[2];
  alignas(16) std::byte memory[4096];
};

// What runs one block after another on one thread of the host.
class Machine {
 public:
  // The one of this thread, made when it first runs a grid.
  static inline constinit thread_local Machine* running = nullptr;
  static Machine& of_this_thread() { return *running; }

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
    if (current_->state == Thread::State::ready) return;
    Fiber& mine = *current_->fiber;
    take_turn();
    leave(mine);
  }

 private:
  void run_block(uint3 at, dim3 grid, dim3 block) {
    blockIdx = at, blockDim = block, gridDim = grid;
    warps_.resize(std::max(warps_.size(), size_t(num_threads_ + kLanes - 1) / kLanes));
    live_ = num_threads_, arrived_ = 0;
    threads_.assign(size_t(num_threads_), Thread());
    for (int i = 0; i < num_threads_; ++i) {
      threads_[size_t(i)].index = i;
      Warp& w = warps_[size_t(i / kLanes)];
      if (i % kLanes == 0) w.live = w.arrived = w.turn = 0, w.gifts[0].givers = 0;
      ++w.live;
    }
    while (live_ > 0) {
      is_backwards_ = !is_backwards_;  // a barrier that is missing shows whichever thread should wait
      turn_ = -1;
      const bool has_moved = take_turn();
      // Undefined on a GPU, where it hangs.
      weft::check(has_moved, "{} threads of a block wait at barriers that others do not reach", live_);
      start();
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

  // Becomes the next thread of this round that can go on; false when the round is over.
  bool take_turn() {
    while (++turn_ < num_threads_) {
      Thread& thread = in_turn(turn_);
      if (thread.state != Thread::State::not_begun && thread.state != Thread::State::ready) continue;
      if (thread.state == Thread::State::not_begun) prepare(thread);
      become(thread);
      return true;
    }
    return false;
  }

  // A fiber whose thread has ended goes on with the next one that has not begun: only what waits costs a switch.
  static void begin() {
    Machine& m = of_this_thread();
    for (;;) {
      (*m.body_)();
      Fiber* const mine = m.current_->fiber;
      m.finish();
      m.free_.push_back(mine);
      if (!m.take_turn() || m.current_->fiber != mine) m.leave(*mine);
    }
  }
  void finish() {
    Thread& thread = *current_;
    thread.state = Thread::State::finished;
    Warp& w = warp();
    --w.live, --live_;
    open_warp(thread.index / kLanes);
    open_block();
  }
  // From the scheduler to the thread whose turn it is; comes back when the round is over.
  [[gnu::noinline]] void start() {
    if (__builtin_setjmp(scheduler_) == 0) go_on();
  }
  // From `fiber` to whoever's turn it is, until somebody goes on with it.
  [[gnu::noinline]] void leave(Fiber& fiber) {
    if (__builtin_setjmp(fiber.place) == 0) go_on();
  }
  [[noreturn, gnu::noinline]] void go_on() {
    if (turn_ == num_threads_) go_on_at(scheduler_);
    Fiber& next = *current_->fiber;
    if (std::exchange(next.has_begun, true)) go_on_at(next.place);
    setcontext(&next.context);
    std::abort();
  }

  void open_warp(int index) {
    Warp& w = warps_[size_t(index)];
    if (w.arrived == 0 || w.arrived < w.live) return;
    w.arrived = 0;
    w.turn ^= 1, w.gifts[w.turn].givers = 0;
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

  Place scheduler_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Thread* current_ = nullptr;
  int turn_ = 0;  // of the round over threads
  const std::function<void()>* body_ = nullptr;
  int num_threads_ = 0, live_ = 0, arrived_ = 0;
  int64_t num_following_ = 0;
  bool is_backwards_ = true;
};

}  // namespace

int lane() { return Machine::of_this_thread().lane(); }
void sync_block() { Machine::of_this_thread().wait(Thread::State::at_block_barrier); }
void sync_warp() { Machine::of_this_thread().wait(Thread::State::at_warp_barrier); }

// Gives `mine` and waits for what the other lanes of the warp give.
static const Warp::Gifts& give(uint64_t mine) {
  Warp& w = Machine::of_this_thread().warp();
  Warp::Gifts& gifts = w.gifts[w.turn];
  gifts.givers |= 1u << lane(), gifts.values[lane()] = mine;
  sync_warp();
  return gifts;
}

uint64_t exchange(uint64_t mine, int from_lane) {
  const Warp::Gifts& gifts = give(mine);
  return gifts.givers >> from_lane & 1 ? gifts.values[from_lane] : mine;
}

unsigned votes_of_warp(bool mine) {
  const Warp::Gifts& gifts = give(mine);
  unsigned votes = 0;
  for (int i = 0; i < kLanes; ++i) votes |= unsigned(gifts.givers >> i & 1 && gifts.values[i]) << i;
  return votes;
}

void* warp_memory(size_t bytes) {
  weft::check(bytes <= sizeof(Warp::memory), "a warp has no {} bytes", bytes);
  return Machine::of_this_thread().warp().memory;
}

void run_grid(dim3 grid, dim3 block, bool follows, const std::function<void()>& body) {
  const Arena::Open open(Arena::instance());
  static thread_local Machine machine;
  Machine::running = &machine;
  machine.run(grid, block, follows, body);
}
void follow() { Machine::of_this_thread().follow(); }

}  // namespace emulated
