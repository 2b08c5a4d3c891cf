// ThreadTeam: the threads of one rank, which run one function together and wait for each other.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/base/read_order.h"

namespace weft {

// `size` workers, of which worker 0 is the calling thread. Idle workers spin briefly, then sleep: a spinning thread
// on a core that another process wants costs milliseconds. Nothing here allocates after construction.
class ThreadTeam {
 public:
  // cpus: the cores to pin the workers to, worker i to cpus[i]; empty leaves them unpinned.
  explicit ThreadTeam(int size, std::vector<int> cpus = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Runs body(worker) once on every worker; returns when all are done and rethrows the first exception.
  void run(FunctionRef<void(int worker)> body);

  // Cuts [0, count) into chunks of `grain` which idle workers take in their order; body(begin, end, worker).
  // Chunk borders do not depend on the number of workers, so results that are a function of the chunk are bitwise
  // the same for any team.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end, int worker)> body);

  // The same for work that is bound by reading memory: a worker has a run of neighbouring chunks, so that what the
  // processor fetches ahead is its own, and takes from the ends of the others' runs when it has done them (Blumofe
  // and Leiserson, "Scheduling Multithreaded Computations by Work Stealing", 1999). No chunk may wait for another.
  // reads(i): where the memory that element i reads begins. Workers that wait fetch the beginning of what they read
  // in the next such round the last time, so that memory is not idle between rounds.
  void parallel_runs(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end, int worker)> body,
                     FunctionRef<const void*(int64_t)> reads);

 private:
  // The chunks [begin, end) that are left of a worker's run.
  class alignas(64) Share {
   public:
    void set(int64_t begin, int64_t end);  // each below 2^32
    // Takes [first, end) of them; false when none is left.
    bool take_front(int64_t& first, int64_t& end) { return take(true, first, end); }
    bool take_back(int64_t& first, int64_t& end) { return take(false, first, end); }

   private:
    bool take(bool from_front, int64_t& first, int64_t& end);

    std::atomic<uint64_t> left_{0};  // begin in the lower half, end in the upper
  };

  // What a worker fetches while it waits.
  class Fetch {
   public:
    // Begins anew where this is another round's.
    void set(uint64_t round, const std::byte* from);
    // Some lines more; false when enough was fetched.
    bool step();

   private:
    uint64_t round_ = 0;
    const std::byte *at_ = nullptr, *end_ = nullptr;
  };

  void work(int worker);
  void run_body(int worker);

  int size_;
  std::atomic<uint32_t> generation_{0};  // a new value starts a round
  std::atomic<int> unfinished_{0};       // workers still inside the round
  std::atomic<bool> stop_{false};
  const FunctionRef<void(int)>* body_ = nullptr;
  std::vector<Share> shares_;  // of each worker
  ReadOrder read_order_;
  const std::byte* const* next_reads_ = nullptr;  // of each worker; null: not known
  uint64_t read_rounds_ = 0;                      // those that say what they read
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace weft
