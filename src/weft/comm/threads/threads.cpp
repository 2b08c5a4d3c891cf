// ThreadsCommunicator: a SharedMemoryTeam whose ranks share one address space, and a mailbox for each.
#include "weft/comm/threads/threads.h"

#include <exception>
#include <thread>

#include "weft/base/error.h"
#include "weft/comm/split.h"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kLookAround{20};  // how soon a sleeping rank sees that the job is aborted

}  // namespace

ThreadsJob::ThreadsJob(int num_ranks, CommOptions options) : options_(options), progress_(size_t(num_ranks)) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    progress(rank).set_rank(rank);
    notes_.push_back(&progress(rank));
  }
}

bool ThreadsJob::has_core_for_each() const { return progress_.size() <= std::thread::hardware_concurrency(); }

void ThreadsJob::abort(std::string_view why) noexcept {
  const std::lock_guard lock(mutex_);
  if (is_aborted_.load()) return;
  why_ = why;
  is_aborted_.store(true);
}

void ThreadsJob::check_alive() const {
  if (!is_aborted_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  throw AbortedError("stopped: {}", why_);
}

ThreadsGroup::ThreadsGroup(std::shared_ptr<ThreadsJob> of_job, std::vector<int> world_ranks, std::string_view name)
    : job(std::move(of_job)),
      label(name),
      members(std::move(world_ranks)),
      size(int(members.size())),
      mailboxes(members.size()),
      handed_over(members.size()),
      memory_(Board::bytes_for(size, 0) / sizeof(Line)) {}

Board ThreadsGroup::board() const {
  return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(memory_.data())), size, 0};
}

ThreadsCommunicator::ThreadsCommunicator(std::shared_ptr<ThreadsGroup> group, int rank)
    : Communicator(group->label),
      group_(std::move(group)),
      rank_(rank),
      team_(group_->board(), rank, group_->label, group_->job->has_core_for_each(), *this) {
  set_own_progress(&group_->job->progress(group_->members[size_t(rank)]));
}

ThreadsCommunicator::~ThreadsCommunicator() {
  finish();
  if (std::uncaught_exceptions() == 0) team_.leave();  // else the failure itself is on its way to the others
}

std::unique_ptr<Communicator> ThreadsCommunicator::split(int color, int key, std::string_view label) {
  const SplitPlace place = agree_on_split(*this, color, key, [this](const Collective& c) { collective(c); });
  auto& handed_over = group_->handed_over[size_t(place.members.front())];
  if (place.rank == 0) {
    std::vector<int> members;
    for (const int r : place.members) members.push_back(group_->members[size_t(r)]);
    handed_over = std::make_shared<ThreadsGroup>(group_->job, std::move(members), label);
  }
  barrier();
  auto communicator = std::make_unique<ThreadsCommunicator>(handed_over, place.rank);
  pass_on_to(*communicator);
  barrier();
  if (place.rank == 0) handed_over = nullptr;
  return communicator;
}

void ThreadsCommunicator::run(const Collective& call) {
  try {
    if (call.op == CommOp::send) {
      check_alive();
      return group_->mailboxes[size_t(call.peer)].put(rank_, call);
    }
    if (call.op == CommOp::recv) return receive(call);
    team_.run(call);
  } catch (const AbortedError&) {
    throw;
  } catch (const Error& error) {
    group_->job->abort(fmt::format("rank {}: {}", rank_, error.what()));
    throw;
  }
}

void ThreadsCommunicator::receive(const Collective& call) {
  check_alive();
  Watch watch = this->watch();
  const RankProgress* const sender = progress_of(call.peer);
  bool was_gone = false;  // before the mailbox was last looked into
  group_->mailboxes[size_t(rank_)].take(rank_, call, has_core_for_each(), [&] {
    check_alive();
    if (was_gone || watch.is_over(Watch::Clock::now())) fail_receive(call, was_gone);
    was_gone = sender->has_left();
    return was_gone ? std::chrono::nanoseconds(1) : before_sleep();
  });
}

void ThreadsCommunicator::fail_receive(const Collective& call, bool was_gone) const {
  const double seconds = std::chrono::duration<double>(group_->job->options().timeout).count();
  throw Error("{}: nothing came{}{}", describe(call, label(), progress_of(rank_)),
              was_gone ? "" : fmt::format(" within {:.3g} s", seconds), whereabouts(call));
}

Location ThreadsCommunicator::locate(const std::byte* data, size_t) const {
  return {0, int64_t(reinterpret_cast<intptr_t>(data))};
}

std::byte* ThreadsCommunicator::resolve(int, Location location) const {
  return reinterpret_cast<std::byte*>(intptr_t(location.offset));
}

void ThreadsCommunicator::check_alive() const {
  if (is_given_up()) throw AbortedError("stopped: this rank gave up group {} when it failed", label());
  group_->job->check_alive();
}

const RankProgress* ThreadsCommunicator::progress_of(int rank) const {
  return &group_->job->progress(group_->members[size_t(rank)]);
}

std::chrono::nanoseconds ThreadsCommunicator::before_sleep() { return kLookAround; }

}  // namespace weft
