// MpiCommunicator: groups, shared tensors and messages.
#include "weft/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <climits>
#include <exception>

#include "weft/base/error.h"
#include "weft/comm/split.h"

namespace weft {
namespace {

constexpr size_t kStageBytes = 128 << 10;  // twice for each rank of a group: the second-level cache holds them
constexpr size_t kBlockBytes = 64 << 10;   // shared tensors take multiples, so that few windows serve many sizes

}  // namespace

MpiCommunicator::MpiCommunicator(MpiJob& job, MPI_Comm comm, std::vector<int> members, std::string_view label,
                                 const CommOptions& options)
    : Communicator(label),
      job_(job),
      comm_(comm),
      members_(std::move(members)),
      sorted_members_(members_),
      options_(options),
      wait_([this] { return watch(); }, [this] { check_alive(); }, [this] { job_.make_progress(); },
            [this](const Collective& call) { return describe(call, this->label(), progress_of(rank_)); },
            [this](const Collective& call) { return whereabouts(call); }) {
  MPI_Comm_rank(comm_, &rank_);
  set_own_progress(job_.progress(job_.rank()));
  std::ranges::sort(sorted_members_);
  const bool shares_memory = size() == 1 || (options.share_memory && job_.is_one_machine(members_));
  if (shares_memory) {
    const size_t bytes = Board::bytes_for(size(), kStageBytes);
    const MpiWindow* const window = job_.make_window(comm_, members_, rank_ == 0 ? bytes : 0);
    if (window) {
      const auto first = std::ranges::lower_bound(window->members, members_.front()) - window->members.begin();
      const Board board(window->parts[size_t(first)], size(), kStageBytes);
      team_.emplace(board, rank_, this->label(), job_.has_core_for_each(), static_cast<TeamHost&>(*this));
      return;
    }
  }
  exchange_.emplace(comm_, this->label(), wait_);
}

MpiCommunicator::~MpiCommunicator() {
  finish();
  if (team_ && std::uncaught_exceptions() == 0) team_->leave();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key, std::string_view label) {
  const SplitPlace place = agree_on_split(*this, color, key, [this](const Collective& c) { collective(c); });
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, place.color_index, place.rank, &comm), "split");
  std::vector<int> members;
  for (const int r : place.members) members.push_back(members_[size_t(r)]);
  auto group = std::make_unique<MpiCommunicator>(job_, comm, std::move(members), label, options_);
  pass_on_to(*group);
  return group;
}

Tensor MpiCommunicator::allocate_shared(Allocator& allocator, DType dtype, Shape shape) {
  const size_t needed = std::max<size_t>(size_t(shape.numel()) * size_of(dtype), 1);
  const size_t bytes = (needed + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (!team_ || allocator.device() != Device::cpu) return allocator.empty(dtype, shape);
  if (!all_ranks(job_.has_free_block(sorted_members_, bytes), bytes)) {
    const MpiWindow* const window = job_.make_window(comm_, members_, bytes);
    if (!window) return allocator.empty(dtype, shape);
    job_.add_block(*window);
  }
  return job_.take_block(sorted_members_, bytes, allocator, dtype, shape);
}

// Whether `holds` on every rank, all of which name the same `bytes`.
bool MpiCommunicator::all_ranks(bool holds, size_t bytes) {
  struct Answer {
    size_t bytes, holds;
  };
  const Answer mine{bytes, holds};
  const size_t ranks = size_t(size());
  std::vector<Answer> answers(ranks);
  Collective call;
  call.op = CommOp::allocate_shared, call.bytes = sizeof mine;
  call.in = reinterpret_cast<const std::byte*>(&mine), call.out = reinterpret_cast<std::byte*>(answers.data());
  collective(call);
  for (int r = 0; r < size(); ++r)
    if (answers[size_t(r)].bytes != answers[0].bytes)
      throw Error("allocate_shared (group {}): rank 0 asks for {} bytes, rank {} for {}", label(), answers[0].bytes,
                  r, answers[size_t(r)].bytes);
  return std::ranges::all_of(answers, [](const Answer& a) { return a.holds != 0; });
}

void MpiCommunicator::run(const Collective& call) {
  check_alive();
  if (call.op == CommOp::send || call.op == CommOp::recv) {
    if (call.bytes > size_t(INT_MAX)) throw Error("{}: messages are at most 2 GiB; send parts", describe(call));
    return call.op == CommOp::send ? job_.send(comm_, call) : receive(call);
  }
  team_ ? team_->run(call) : exchange_->run(call);
}

void MpiCommunicator::receive(const Collective& call) {
  MPI_Message message;
  MPI_Status status;
  wait_.until(
      call, [] { return std::string("nothing came"); },
      [&] {
        int is_there = 0;
        check_mpi(MPI_Improbe(call.peer, call.tag, comm_, &is_there, &message, &status), "recv");
        return is_there != 0;
      });
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (size_t(bytes) != call.bytes)
    throw Error("rank {} sends {} bytes, rank {} calls {}; both must name the same size", call.peer, bytes, rank_,
                describe(call));
  MPI_Request request;
  check_mpi(MPI_Imrecv(call.out, bytes, MPI_BYTE, &message, &request), "recv");
  wait_.until(
      call, [] { return std::string("the message stopped"); },
      [&] {
        int is_done = 0;
        check_mpi(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "recv");
        return is_done != 0;
      });
}

Location MpiCommunicator::locate(const std::byte* data, size_t bytes) const {
  return job_.locate(data, bytes, sorted_members_);
}

std::byte* MpiCommunicator::resolve(int rank, Location location) const {
  return job_.resolve(members_[size_t(rank)], location);
}

void MpiCommunicator::check_alive() const {
  if (is_given_up()) throw AbortedError("stopped: this rank gave up group {} when it failed", label());
}

}  // namespace weft
