// MpiExchange: one primitive, everybody sends everybody a range of bytes, and the collectives made of it.
#include "weft/comm/mpi/mpi_exchange.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "weft/base/error.h"
#include "weft/comm/mpi/mpi_job.h"
#include "weft/comm/shared/reduce.h"

namespace weft {
namespace {

constexpr size_t kMessage = 256 << 20;  // most bytes of one MPI message, whose counts are ints
constexpr size_t kRound = 16 << 20;     // bytes of a reduction taken at a time, which bounds the scratch memory

// Polling is by time: where MPI yields the core in each call, a busy machine gives it back milliseconds later, while
// one who sleeps is woken at once.
constexpr std::chrono::microseconds kPolling{100};
constexpr int kNapMicroseconds = 20;

constexpr int kMostAcquainted = 64;  // ranks that tell each other one by one what they call; more do so in a tree

}  // namespace

MpiWait::MpiWait(std::function<Watch()> watch, std::function<void()> check_alive, std::function<void()> make_progress,
                 std::function<std::string(const Collective&)> what,
                 std::function<std::string(const Collective&)> whereabouts)
    : watch_(std::move(watch)),
      check_alive_(std::move(check_alive)),
      make_progress_(std::move(make_progress)),
      what_(std::move(what)),
      whereabouts_(std::move(whereabouts)) {}

void MpiWait::until(const Collective& call, FunctionRef<std::string()> complaint, FunctionRef<bool()> is_done) const {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::optional<Watch> watch;
  while (!is_done()) {
    const auto now = Clock::now();
    if (now - begin < kPolling) continue;
    if (!watch) watch.emplace(watch_());
    make_progress_();
    check_alive_();
    if (watch->is_over(now))
      throw Error("{}: {} within {:.3g} s{}; every rank of a group must make the same calls", what_(call),
                  complaint(), watch->seconds(), whereabouts_(call));
    usleep(kNapMicroseconds);
  }
}

MpiExchange::MpiExchange(MPI_Comm comm, std::string_view label, const MpiWait& wait) : label_(label), wait_(wait) {
  check_mpi(MPI_Comm_dup(comm, &comm_), "duplicate a group");
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  posts_.resize(size_t(size_));
  counts_.resize(size_t(size_) * size_t(size_) * 2);
  ins_.resize(size_t(size_));
}

void MpiExchange::run(const Collective& call) {
  if (is_broken_) throw Error("{}: group {} is broken by an earlier failure", describe(call), label_);
  is_broken_ = true;  // unless it ends well
  compare(call);
  move(call);
  is_broken_ = false;
}

void MpiExchange::move(const Collective& call) {
  const auto own = [&](int) { return std::span(call.in, call.bytes); };
  switch (call.op) {
    case CommOp::barrier: return;  // comparing was one
    case CommOp::all_reduce: return all_reduce(call);
    case CommOp::reduce_scatter: return reduce_scatter(call);
    case CommOp::all_to_all: return all_to_all(call);
    case CommOp::broadcast: {
      const bool is_root = rank_ == call.peer;
      return exchange(
          call, [&](int r) { return std::span(call.out, r == call.peer && !is_root ? call.bytes : 0); },
          [&](int r) { return std::span(call.in, is_root && r != rank_ ? call.bytes : 0); });
    }
    default:
      return exchange(
          call, [&](int r) { return std::span(call.out + size_t(r) * call.bytes, call.bytes); }, own);
  }
}

void MpiExchange::compare(const Collective& call) {
  Post& mine = posts_[size_t(rank_)];
  mine = post_of(call, {});
  const auto bytes_of = [&](int r) { return std::as_writable_bytes(std::span(&posts_[size_t(r)], 1)); };
  if (size_ <= kMostAcquainted) {
    exchange(
        call, [&](int r) { return r == rank_ ? std::span<std::byte>() : bytes_of(r); },
        [&](int r) { return r == rank_ ? std::span<std::byte>() : bytes_of(rank_); });
    return compare_posts(
        size_, [&](int r) -> const Post& { return posts_[size_t(r)]; }, label_);
  }
  requests_.resize(1), senders_.clear();
  check_mpi(MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, posts_.data(), sizeof mine, MPI_BYTE, comm_, &requests_[0]),
            describe(call));
  wait_for_requests(call);
  compare_posts(
      size_, [&](int r) -> const Post& { return posts_[size_t(r)]; }, label_);
}

void MpiExchange::wait_for_requests(const Collective& call) {
  wait_.until(
      call, [this] { return missing(); },
      [&] {
        int is_done = 0;
        check_mpi(MPI_Testall(int(requests_.size()), requests_.data(), &is_done, MPI_STATUSES_IGNORE),
                  describe(call));
        return is_done != 0;
      });
}

// Says whose messages are still awaited, where every rank's are awaited on their own.
std::string MpiExchange::missing() {
  std::set<int> ranks;
  for (size_t i = 0; i < senders_.size() && i < requests_.size(); ++i) {
    int is_done = 0;
    if (MPI_Test(&requests_[i], &is_done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_done) ranks.insert(senders_[i]);
  }
  if (ranks.empty()) return "not all ranks came";
  return fmt::format("rank{} {} did not come", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

void MpiExchange::exchange(const Collective& call, Out receive, In send) {
  constexpr int kTag = 0;
  requests_.clear(), senders_.clear();
  for (int i = 1; i < size_; ++i) {
    const int from = (rank_ + size_ - i) % size_;
    const auto out = receive(from);
    for (size_t begin = 0; begin < out.size(); begin += kMessage) {
      senders_.push_back(from);
      check_mpi(MPI_Irecv(out.data() + begin, int(std::min(kMessage, out.size() - begin)), MPI_BYTE, from, kTag,
                          comm_, &requests_.emplace_back()),
                describe(call));
    }
  }
  for (int i = 1; i < size_; ++i) {
    const int to = (rank_ + i) % size_;
    const auto in = send(to);
    for (size_t begin = 0; begin < in.size(); begin += kMessage)
      check_mpi(MPI_Isend(in.data() + begin, int(std::min(kMessage, in.size() - begin)), MPI_BYTE, to, kTag, comm_,
                          &requests_.emplace_back()),
                describe(call));
  }
  const auto own = send(rank_);
  const auto out = receive(rank_);
  if (!out.empty() && out.data() != own.data()) std::memmove(out.data(), own.data(), out.size());
  wait_for_requests(call);
}

std::byte* MpiExchange::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

// Sends in(r) to rank r and reduces what this rank is sent, which is as long as `out`.
void MpiExchange::reduce_part(const Collective& call, std::span<std::byte> out, In in) {
  std::byte* const received = scratch(out.size() * size_t(size_));
  const auto part = [&](int r) { return std::span(received + size_t(r) * out.size(), out.size()); };
  exchange(call, part, in);
  for (int r = 0; r < size_; ++r) ins_[size_t(r)] = part(r).data();
  std::byte* const to = out.data();
  reduce(call.dtype, call.reduction, {&to, 1}, ins_, int64_t(out.size() / size_of(call.dtype)));
}

void MpiExchange::all_reduce(const Collective& call) {
  for (size_t begin = 0; begin < call.bytes; begin += kRound) {
    const size_t bytes = std::min(kRound, call.bytes - begin);
    const size_t each = (bytes / size_t(size_) + 63) / 64 * 64;
    const auto part = [&](int r) {
      const size_t first = std::min(size_t(r) * each, bytes);
      const size_t end = r == size_ - 1 ? bytes : std::min(first + each, bytes);
      return std::span(call.out + begin + first, end - first);
    };
    reduce_part(call, part(rank_), part);
    exchange(call, part, [&](int) { return part(rank_); });
  }
}

void MpiExchange::reduce_scatter(const Collective& call) {
  const size_t round = std::max<size_t>(kRound / size_t(size_) / 64 * 64, 64);
  for (size_t begin = 0; begin < call.bytes; begin += round) {
    const size_t bytes = std::min(round, call.bytes - begin);
    reduce_part(call, {call.out + begin, bytes},
                [&](int r) { return std::span(call.in + size_t(r) * call.bytes + begin, bytes); });
  }
}

void MpiExchange::all_to_all(const Collective& call) {
  const size_t n = size_t(size_);
  std::vector<int64_t> mine(call.out_counts.begin(), call.out_counts.end());
  mine.insert(mine.end(), call.in_counts.begin(), call.in_counts.end());
  requests_.resize(1), senders_.clear();
  check_mpi(MPI_Iallgather(mine.data(), int(2 * n), MPI_INT64_T, counts_.data(), int(2 * n), MPI_INT64_T, comm_,
                           &requests_[0]),
            describe(call));
  wait_for_requests(call);
  const auto out_counts = [&](int r) { return std::span<const int64_t>(counts_).subspan(size_t(r) * 2 * n, n); };
  const auto in_counts = [&](int r) { return std::span<const int64_t>(counts_).subspan((size_t(r) * 2 + 1) * n, n); };
  compare_counts(size_, out_counts, in_counts, label_);

  const auto range = [&](auto* data, std::span<const int64_t> counts, int r) {
    int64_t before = 0;
    for (int i = 0; i < r; ++i) before += counts[size_t(i)];
    return std::span(data + size_t(before) * call.row_bytes, size_t(counts[size_t(r)]) * call.row_bytes);
  };
  exchange(
      call, [&](int r) { return range(call.out, call.out_counts, r); },
      [&](int r) { return range(call.in, call.in_counts, r); });
}

}  // namespace weft
