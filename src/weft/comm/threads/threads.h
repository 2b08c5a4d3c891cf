// ThreadsCommunicator: one of several ranks that are threads of this process. Made by run_ranks.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/mailbox.h"
#include "weft/comm/shared/team.h"

namespace weft {

// What all groups of a job share.
class ThreadsJob {
 public:
  ThreadsJob(int num_ranks, CommOptions options);
  const CommOptions& options() const { return options_; }
  void abort(std::string_view why) noexcept;  // the first reason stays
  void check_alive() const;
  bool has_core_for_each() const;
  RankProgress& progress(int world_rank) { return progress_[size_t(world_rank)]; }
  Watch watch(const RankProgress& own) const { return {options_.timeout, &own, notes_}; }

 private:
  CommOptions options_;
  std::vector<RankProgress> progress_;
  std::vector<const RankProgress*> notes_;  // all of these
  std::atomic<bool> is_aborted_{false};
  mutable std::mutex mutex_;
  std::string why_;
};

// What the ranks of one group share.
class ThreadsGroup {
 public:
  // `members` are the world ranks of the group's ranks.
  ThreadsGroup(std::shared_ptr<ThreadsJob> job, std::vector<int> members, std::string_view label);

  std::shared_ptr<ThreadsJob> job;
  std::string label;
  std::vector<int> members;
  int size;
  std::vector<Mailbox> mailboxes;                          // one per rank
  std::vector<std::shared_ptr<ThreadsGroup>> handed_over;  // by the first rank of a new group, inside split

  Board board() const;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_;
};

class ThreadsCommunicator final : public Communicator, private TeamHost {
 public:
  ThreadsCommunicator(std::shared_ptr<ThreadsGroup> group, int rank);
  ~ThreadsCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }
  std::string_view name() const override { return "threads"; }
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label) override;
  void abort(std::string_view why) noexcept override { group_->job->abort(why); }

 private:
  void run(const Collective& call) override;
  void receive(const Collective& call);
  [[noreturn]] void fail_receive(const Collective& call, bool was_gone) const;
  Location locate(const std::byte* data, size_t) const override;
  std::byte* resolve(int, Location location) const override;
  void check_alive() const override;
  std::chrono::nanoseconds before_sleep() override;
  const RankProgress* progress_of(int rank) const override;
  bool has_core_for_each() const override { return group_->job->has_core_for_each(); }
  Watch watch() const override { return group_->job->watch(*progress_of(rank_)); }

  std::shared_ptr<ThreadsGroup> group_;
  int rank_;
  SharedMemoryTeam team_;
};

}  // namespace weft
