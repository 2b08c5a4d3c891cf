// SharedMemoryTeam: how ranks meet, wait, time out and compare what they were called for.
#include "weft/comm/shared/team.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "weft/base/error.h"

namespace weft {
namespace {

// One rank's part of a collective over one rank.
void run_alone(const Collective& call) {
  if (call.bytes && call.out != call.in) std::memmove(call.out, call.in, call.bytes);
}

}  // namespace

SharedMemoryTeam::SharedMemoryTeam(Board board, int rank, std::string_view label, bool spins, TeamHost& host)
    : board_(board),
      rank_(rank),
      size_(board.size()),
      label_(label),
      spins_(spins),
      host_(host),
      ins_(size_t(size_)),
      outs_(size_t(size_)) {}

void SharedMemoryTeam::run(const Collective& call) {
  host_.check_alive();
  if (size_ == 1) return run_alone(call);
  if (is_broken_) throw Error("{}: group {} is broken by an earlier failure", describe(call), label_);
  is_broken_ = true;  // unless it ends well
  run_together(call);
  is_broken_ = false;
}

void SharedMemoryTeam::run_together(const Collective& call) {
  ++round_;
  post(call);
  meet(call);
  compare_posts(
      size_, [&](int r) -> const Post& { return post_by(r); }, label_);
  if (call.op == CommOp::all_to_all)
    compare_counts(
        size_, [&](int r) { return board_.out_counts(r, parity()); },
        [&](int r) { return board_.in_counts(r, parity()); }, label_);
  if (travels_in_board(call)) return run_in_board(call);
  if (!all_visible(call)) return run_staged(call);
  run_directly(call);
  part(call);
  if (rank_ == 0) board_.header().next_chunk.store(0, std::memory_order_relaxed);
}

void SharedMemoryTeam::leave() {
  mine().has_left.store(true);
  board_.header().signal.raise();
}

void SharedMemoryTeam::post(const Collective& call) {
  const size_t parts = call.op == CommOp::reduce_scatter ? size_t(size_) : 1;
  Board::Seat& seat = mine();
  Location in{0, 0};
  if (travels_in_board(call)) {
    const bool has_data = call.op != CommOp::broadcast || rank_ == call.peer;
    if (call.bytes && has_data) std::memcpy(seat.payload[parity()], call.in, call.bytes * parts);
  } else {
    in = call.bytes ? host_.locate(call.in, call.bytes * parts) : in;
  }
  seat.posts[parity()] = post_of(call, in);
  if (call.op == CommOp::all_to_all) {
    std::ranges::copy(call.in_counts, board_.in_counts(rank_, parity()).begin());
    std::ranges::copy(call.out_counts, board_.out_counts(rank_, parity()).begin());
  }
  seat.round.store(round_, std::memory_order_relaxed);
}

bool SharedMemoryTeam::travels_in_board(const Collective& call) const {
  if (call.op == CommOp::all_to_all) return false;
  return call.bytes * (call.op == CommOp::reduce_scatter ? size_t(size_) : 1) <= Board::kPayload;
}

bool SharedMemoryTeam::all_visible(const Collective& call) const {
  if (call.op == CommOp::broadcast) return post_by(call.peer).in.region != Location::kPrivate;
  for (int r = 0; r < size_; ++r)
    if (post_by(r).in.region == Location::kPrivate) return false;
  return true;
}

// ---- waiting ----

std::optional<uint64_t> SharedMemoryTeam::arrive() {
  std::atomic<uint64_t>& arrivals = board_.header().arrivals;
  const uint64_t before = arrivals.fetch_add(1), generation = before >> 32;
  if (uint32_t(before) + 1 < uint32_t(size_)) return generation;
  arrivals.store((generation + 1) << 32);
  board_.header().signal.raise();
  return std::nullopt;
}

void SharedMemoryTeam::meet(const Collective& call) {
  const std::optional<uint64_t> generation = arrive();
  mine().meetings.store(++meetings_, std::memory_order_relaxed);
  if (!generation) return;
  std::optional<Watch> watch;
  wait_for_all(*generation, [&] {
    const auto now = Watch::Clock::now();
    if (!watch) watch.emplace(host_.watch());
    try {
      host_.check_alive();
      bool is_hopeless = watch->is_over(now);
      for (int r = 0; r < size_; ++r)
        is_hopeless |= board_.seat(r).has_left.load() && board_.seat(r).round.load() < round_;
      if (is_hopeless) fail_missing(call, watch->seconds());
    } catch (const Error&) {
      if (withdraw(*generation)) throw;  // else the last rank came just now
    }
    return std::min(host_.before_sleep(), watch->left(now));
  });
}

void SharedMemoryTeam::part(const Collective& call) {
  mine().parted.store(round_);
  const std::optional<uint64_t> generation = arrive();
  if (!generation) return;
  std::optional<Watch> watch;
  wait_for_all(*generation, [&] {
    const auto now = Watch::Clock::now();
    if (!watch) watch.emplace(host_.watch());
    if (watch->is_over(now)) fail_parting(call, watch->seconds());
    return std::min(host_.before_sleep(), watch->left(now));
  });
}

void SharedMemoryTeam::wait_for_all(uint64_t generation, FunctionRef<std::chrono::nanoseconds()> before_sleep) {
  const std::atomic<uint64_t>& arrivals = board_.header().arrivals;
  board_.header().signal.wait(
      spins_, [&] { return arrivals.load() >> 32 != generation; }, before_sleep);
}

bool SharedMemoryTeam::withdraw(uint64_t generation) {
  std::atomic<uint64_t>& arrivals = board_.header().arrivals;
  uint64_t seen = arrivals.load();
  do {
    if (seen >> 32 != generation || uint32_t(seen) == uint32_t(size_)) return false;
  } while (!arrivals.compare_exchange_weak(seen, seen - 1));
  mine().round.store(round_ - 1);
  return true;
}

void SharedMemoryTeam::fail_parting(const Collective& call, double waited_s) const {
  fail_stopped(call, waited_s, [&](int r) { return board_.seat(r).parted.load() < round_; });
}

void SharedMemoryTeam::fail_stopped(const Collective& call, double waited_s,
                                    FunctionRef<bool(int rank)> has_stopped) const {
  std::vector<std::string> stopped;
  for (int r = 0; r < size_; ++r)
    if (has_stopped(r)) stopped.push_back(describe_rank(r, host_.progress_of(r)));
  throw Error("{}: {} came, and then stopped in the midst of it for {:.3g} s",
              describe(call, label_, host_.progress_of(rank_)), fmt::join(stopped, ", "), waited_s);
}

void SharedMemoryTeam::fail_missing(const Collective& call, double waited_s) const {
  std::vector<int> missing;
  std::vector<std::string> places;
  bool has_left = false;
  for (int r = 0; r < size_; ++r) {
    const Board::Seat& seat = board_.seat(r);
    const uint64_t calls = seat.round.load();
    if (calls >= round_) continue;
    const RankProgress* const progress = host_.progress_of(r);
    const std::string seen = progress ? progress->describe() : "";
    std::string place = describe_rank(r, progress);
    if (seat.has_left.load()) {
      has_left = true;
      place += fmt::format(" left after {} calls", calls);
    } else {
      place += fmt::format(" has made {} calls{}{}", calls, seen.empty() ? "" : " and ", seen);
    }
    missing.push_back(r);
    places.push_back(std::move(place));
  }
  if (missing.empty())
    fail_stopped(call, waited_s, [&](int r) { return board_.seat(r).meetings.load() < meetings_; });
  throw Error("{}: rank{} {} did not come{}; {}; every rank of a group must make the same calls",
              describe(call, label_, host_.progress_of(rank_)), missing.size() == 1 ? "" : "s",
              fmt::join(missing, ", "), has_left ? "" : fmt::format(" within {:.3g} s", waited_s),
              fmt::join(places, "; "));
}

}  // namespace weft
