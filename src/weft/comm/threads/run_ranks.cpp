// run_ranks: threads, and which of their failures came first.
#include "weft/comm/threads/run_ranks.h"

#include <numeric>
#include <optional>
#include <thread>

#include "weft/base/error.h"
#include "weft/comm/single/single.h"
#include "weft/comm/threads/threads.h"

namespace weft {
namespace {

// Keeps the first failure that is not a consequence of another, and ends the job with it.
class Failures {
 public:
  explicit Failures(ThreadsJob& job) : job_(job) {}

  // To be called while handling the exception of `rank`.
  void add_current(int rank) {
    std::string message;
    bool is_usage = false, is_aborted = false;
    try {
      throw;
    } catch (const AbortedError& error) {
      message = error.what(), is_aborted = true;
    } catch (const UsageError& error) {
      message = error.what(), is_usage = true;
    } catch (const std::exception& error) {
      message = error.what();
    } catch (...) {
      message = "an exception of unknown type";
    }
    const std::lock_guard lock(mutex_);
    if (is_aborted) {
      if (!aborted_) aborted_ = message;
      return;
    }
    if (failed_) return;
    // What a user wrote is wrong on any rank.
    failed_ = is_usage ? message : fmt::format("rank {}: {}", rank, message), is_usage_ = is_usage;
    job_.abort(*failed_);
  }

  void rethrow() const {
    if (failed_ && is_usage_) throw UsageError(*failed_);
    if (failed_) throw Error(*failed_);
    if (aborted_) throw AbortedError(*aborted_);
  }

 private:
  ThreadsJob& job_;
  std::mutex mutex_;
  std::optional<std::string> failed_, aborted_;
  bool is_usage_ = false;
};

}  // namespace

void run_ranks(int num_ranks, const std::function<void(Communicator&)>& body, const CommOptions& options) {
  check(num_ranks >= 1, "run_ranks: {} ranks", num_ranks);
  if (num_ranks == 1) return body(*make_single_communicator());
  const auto job = std::make_shared<ThreadsJob>(num_ranks, options);
  std::vector<int> members(size_t(num_ranks), 0);
  std::iota(members.begin(), members.end(), 0);
  const auto world = std::make_shared<ThreadsGroup>(job, std::move(members), "world");
  Failures failures(*job);
  const auto run_rank = [&](int rank) {
    try {
      ThreadsCommunicator communicator(world, rank);
      body(communicator);
      job->progress(rank).set_left();
    } catch (...) {
      failures.add_current(rank);
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (int rank = 1; rank < num_ranks; ++rank) threads.emplace_back(run_rank, rank);
    run_rank(0);
  } catch (...) {  // the system refused a thread
    failures.add_current(int(threads.size()) + 1);
  }
  threads.clear();  // joins
  failures.rethrow();
}

}  // namespace weft
