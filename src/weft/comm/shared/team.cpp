// SharedMemoryTeam: how ranks meet, wait, time out and compare what they were called for.
#include "weft/comm/shared/team.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"

namespace weft {
namespace {

Collective call_of(const Post& post) {
  Collective call;
  call.op = post.op, call.dtype = post.dtype, call.reduction = post.reduction, call.peer = post.peer;
  call.sequence = post.sequence, call.bytes = post.bytes, call.row_bytes = post.row_bytes;
  return call;
}

bool is_same_call(const Post& a, const Post& b) {
  return a.op == b.op && a.dtype == b.dtype && a.reduction == b.reduction && a.peer == b.peer &&
         a.row_bytes == b.row_bytes && (a.bytes == b.bytes || a.op == CommOp::all_to_all);
}

// One rank's part of a collective over one rank.
void run_alone(const Collective& call) {
  if (call.bytes && call.out != call.in) std::memmove(call.out, call.in, call.bytes);
}

}  // namespace

SharedMemoryTeam::SharedMemoryTeam(Board board, int rank, std::string_view label, const CommOptions& options,
                                   bool spins, TeamHost& host)
    : board_(board),
      rank_(rank),
      size_(board.size()),
      label_(label),
      timeout_(options.timeout),
      spins_(spins),
      host_(host),
      ins_(size_t(size_)),
      outs_(size_t(size_)) {}

void SharedMemoryTeam::run(const Collective& call) {
  host_.check_alive();
  if (size_ == 1) return run_alone(call);
  if (is_broken_) throw Error("{}: group {} is broken by an earlier failure", describe(call), label_);
  ++round_;
  post(call);
  meet(call);
  compare_posts();
  if (call.op == CommOp::all_to_all) compare_counts();
  if (travels_in_board(call)) return run_in_board(call);
  if (!all_visible(call)) return run_staged(call);
  run_directly(call);
  part();
  if (rank_ == 0) board_.header().next_chunk.store(0, std::memory_order_relaxed);
}

void SharedMemoryTeam::leave() {
  mine().has_left.store(true);
  board_.header().signal.raise();
}

void SharedMemoryTeam::post(const Collective& call) {
  const auto locate = [&](const std::byte* data, size_t bytes) {
    return bytes ? host_.locate(data, bytes) : Location{0, 0};
  };
  const size_t parts = call.op == CommOp::reduce_scatter ? size_t(size_) : 1;
  Board::Seat& seat = mine();
  Post& post = seat.posts[parity()];
  post = {call.op, call.dtype, call.reduction, call.peer, call.sequence, call.bytes, call.row_bytes, {}, {}};
  if (travels_in_board(call)) {
    const bool has_data = call.op != CommOp::broadcast || rank_ == call.peer;
    if (call.bytes && has_data) std::memcpy(seat.payload[parity()], call.in, call.bytes * parts);
  } else {
    post.in = locate(call.in, call.bytes * parts);
    post.out = call.op == CommOp::all_reduce ? post.in : Location{};
  }
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
  if (call.op == CommOp::broadcast) return post_of(call.peer).in.region != Location::kPrivate;
  for (int r = 0; r < size_; ++r)
    if (post_of(r).in.region == Location::kPrivate) return false;
  return true;
}

// ---- waiting ----

void SharedMemoryTeam::meet(const Collective& call) {
  std::atomic<uint64_t>& arrivals = board_.header().arrivals;
  const uint64_t before = arrivals.fetch_add(1), generation = before >> 32;
  if (uint32_t(before) + 1 == uint32_t(size_)) {
    arrivals.store((generation + 1) << 32);
    return board_.header().signal.raise();
  }
  Signal::Clock::time_point deadline{};
  wait_for_all(generation, [&] {
    const auto now = Signal::Clock::now();
    if (deadline == Signal::Clock::time_point{}) deadline = now + timeout_;
    try {
      host_.check_alive();
      bool is_hopeless = now >= deadline;
      for (int r = 0; r < size_; ++r)
        is_hopeless |= board_.seat(r).has_left.load() && board_.seat(r).round.load() < round_;
      if (is_hopeless) fail_missing(call);
    } catch (const Error&) {
      if (withdraw(generation)) throw;  // else the last rank came just now
    }
    return std::min(host_.before_sleep(),
                    std::max<std::chrono::nanoseconds>(deadline - now, std::chrono::microseconds(50)));
  });
}

void SharedMemoryTeam::part() {
  std::atomic<uint64_t>& arrivals = board_.header().arrivals;
  const uint64_t before = arrivals.fetch_add(1), generation = before >> 32;
  if (uint32_t(before) + 1 == uint32_t(size_)) {
    arrivals.store((generation + 1) << 32);
    return board_.header().signal.raise();
  }
  wait_for_all(generation, [&] { return host_.before_sleep(); });
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
  is_broken_ = true;
  return true;
}

void SharedMemoryTeam::fail_missing(const Collective& call) const {
  std::vector<std::string> missing;
  bool has_left = false;
  for (int r = 0; r < size_; ++r) {
    const Board::Seat& seat = board_.seat(r);
    const uint64_t calls = seat.round.load();
    if (calls >= round_) continue;
    has_left |= seat.has_left.load();
    missing.push_back(
        fmt::format("rank {} (it {} {} calls)", r, seat.has_left.load() ? "left after" : "has made", calls));
  }
  const double seconds = std::chrono::duration<double>(timeout_).count();
  throw Error("{} (group {}, call {}): waited {} for {}; every rank of a group must make the same calls",
              describe(call), label_, call.sequence, has_left ? "in vain" : fmt::format("{:.3g} s", seconds),
              fmt::join(missing, ", "));
}

// ---- checking ----

void SharedMemoryTeam::compare_posts() const {
  const Post& first = post_of(0);
  for (int r = 1; r < size_; ++r) {
    const Post& other = post_of(r);
    if (is_same_call(first, other)) [[likely]]
      continue;
    throw Error(
        "rank 0 calls {}, rank {} calls {} (group {}, call {}); every rank of a group must make the same calls",
        describe(call_of(first)), r, describe(call_of(other)), label_, first.sequence);
  }
}

void SharedMemoryTeam::compare_counts() const {
  for (int from = 0; from < size_; ++from)
    for (int to = 0; to < size_; ++to) {
      const int64_t sent = board_.in_counts(from, parity())[size_t(to)];
      const int64_t expected = board_.out_counts(to, parity())[size_t(from)];
      if (sent != expected)
        throw Error("all_to_all: rank {} sends {} rows to rank {}, which expects {} (group {}, call {})", from, sent,
                    to, expected, label_, post_of(0).sequence);
    }
}

}  // namespace weft
