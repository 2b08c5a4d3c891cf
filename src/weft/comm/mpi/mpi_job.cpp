// MpiJob: MPI's start and end, shared windows and unfinished sends.
#include "weft/comm/mpi/mpi_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kPage = 4096;
constexpr std::chrono::milliseconds kNap{20};
constexpr std::chrono::microseconds kShortNap{100};  // while MPI has something to move
constexpr int kLastPolls = 200'000;                  // more than 10 s

// MPI aligns windows to little. Processes map them at whole pages, so all of them round up to the same byte.
std::byte* round_up_to_page(void* data) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage);
}

}  // namespace

void check_mpi(int status, std::string_view what) {
  if (status == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error("mpi: {}: {}", what, std::string_view(text, size_t(length)));
}

MpiJob::MpiJob() {
  int is_initialized = 0, provided = 0;
  MPI_Initialized(&is_initialized);
  check(!is_initialized, "MPI can be started once only in a process");
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "start");
  if (provided < MPI_THREAD_MULTIPLE)
    throw Error("this MPI library does not support MPI_THREAD_MULTIPLE; install one that does, such as libopenmpi3");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);

  MPI_Comm machine = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine), "split");
  int lowest = rank_;
  MPI_Bcast(&lowest, 1, MPI_INT, 0, machine);
  machines_.resize(size_t(size_));
  MPI_Allgather(&lowest, 1, MPI_INT, machines_.data(), 1, MPI_INT, MPI_COMM_WORLD);
  share_progress(machine);
  MPI_Comm_free(&machine);
}

void MpiJob::share_progress(MPI_Comm machine) {
  progress_.resize(size_t(size_), nullptr);
  std::vector<int> members;
  for (int r = 0; r < size_; ++r)
    if (machines_[size_t(r)] == machines_[size_t(rank_)]) members.push_back(r);
  const MpiWindow* const window = make_window(machine, members, sizeof(RankProgress));
  if (!window) return;
  for (size_t i = 0; i < members.size(); ++i)
    progress_[size_t(members[i])] = reinterpret_cast<RankProgress*>(window->parts[i]);
  progress(rank_)->set_rank(rank_);
}

MpiJob::~MpiJob() {
  if (std::uncaught_exceptions() > 0) return;
  if (RankProgress* const own = progress(rank_)) own->set_left();
  for (int polls = 0; num_outgoing_ > 0; ++polls) {
    make_progress();
    usleep(20);
    if (polls == kLastPolls) abort(fmt::format("{} sent messages were never received", num_outgoing_.load()), 1);
  }
  free_windows();
  MPI_Finalize();
}

void MpiJob::free_windows() {
  std::ranges::sort(windows_, {}, [](const auto& w) { return w->id; });  // the same order on every rank
  for (const auto& w : windows_) MPI_Win_free(&w->window);
}

bool MpiJob::is_one_machine(const std::vector<int>& members) const {
  return std::ranges::all_of(members,
                             [&](int r) { return machines_[size_t(r)] == machines_[size_t(members.front())]; });
}

bool MpiJob::has_core_for_each() const {
  return std::ranges::count(machines_, machines_[size_t(rank_)]) <= sysconf(_SC_NPROCESSORS_ONLN);
}

// ---- windows ----

const MpiWindow* MpiJob::make_window(MPI_Comm comm, const std::vector<int>& members, size_t bytes) {
  auto made = std::make_unique<MpiWindow>();
  made->members = members;
  std::ranges::sort(made->members);
  made->bytes = (bytes + kPage - 1) / kPage * kPage;
  const int status =
      MPI_Win_allocate_shared(MPI_Aint(made->bytes + kPage), 1, MPI_INFO_NULL, comm, &made->own, &made->window);
  int succeeded = status == MPI_SUCCESS, all_succeeded = 0;
  made->id = int64_t(rank_) << 32 | windows_made_;
  MPI_Allreduce(&succeeded, &all_succeeded, 1, MPI_INT, MPI_MIN, comm);
  MPI_Bcast(&made->id, 1, MPI_INT64_T, 0, comm);
  if (!all_succeeded) return nullptr;  // a window that only some ranks have is left to the system

  MPI_Group world_group, group;
  MPI_Comm_group(MPI_COMM_WORLD, &world_group);
  MPI_Comm_group(comm, &group);
  for (const int member : made->members) {
    int local = 0, unit = 0;
    MPI_Aint size = 0;
    void* part = nullptr;
    MPI_Group_translate_ranks(world_group, 1, &member, group, &local);
    check_mpi(MPI_Win_shared_query(made->window, local, &size, &unit, &part), "shared window");
    made->parts.push_back(round_up_to_page(part));
  }
  made->own = round_up_to_page(made->own);
  MPI_Group_free(&world_group);
  MPI_Group_free(&group);
  std::memset(made->own, 0, bytes);
  MPI_Barrier(comm);
  const std::lock_guard lock(mutex_);
  ++windows_made_;
  return windows_.emplace_back(std::move(made)).get();
}

Location MpiJob::locate(const std::byte* data, size_t bytes, const std::vector<int>& members) const {
  const std::lock_guard lock(mutex_);
  for (const auto& w : windows_)
    if (data >= w->own && data + bytes <= w->own + w->bytes && std::ranges::includes(w->members, members))
      return {w->id, data - w->own};
  return {};
}

std::byte* MpiJob::resolve(int world_rank, Location location) const {
  const std::lock_guard lock(mutex_);
  for (const auto& w : windows_) {
    if (w->id != location.region) continue;
    const auto member = std::ranges::lower_bound(w->members, world_rank);
    return w->parts[size_t(member - w->members.begin())] + location.offset;
  }
  throw Error("mpi: rank {} names a window that rank {} does not have", world_rank, rank_);
}

// ---- tensors in windows ----

void MpiJob::add_block(const MpiWindow& window) {
  auto block = std::make_unique<Block>();
  block->data = window.own, block->bytes = window.bytes, block->owner = this, block->members = window.members;
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
}

MpiJob::Block* MpiJob::find_free_block(const std::vector<int>& members, size_t bytes) const {
  const size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  for (const auto& b : blocks_)
    if (b->is_free && b->bytes == rounded && std::ranges::includes(b->members, members)) return b.get();
  return nullptr;
}

bool MpiJob::has_free_block(const std::vector<int>& members, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return find_free_block(members, bytes);
}

Tensor MpiJob::take_block(const std::vector<int>& members, size_t bytes, Allocator& allocator, DType dtype,
                          Shape shape) {
  const std::lock_guard lock(mutex_);
  Block* const block = find_free_block(members, bytes);
  check(block, "mpi: no free block of {} bytes", bytes);
  allocator.count_external(int64_t(block->bytes));
  block->allocator = &allocator, block->is_free = false;
  return {BufferRef(block), dtype, shape};
}

void MpiJob::release(Buffer& buffer) noexcept {
  Block& block = static_cast<Block&>(buffer);
  const std::lock_guard lock(mutex_);
  block.allocator->count_external(-int64_t(block.bytes));
  block.is_free = true;
}

// ---- messages ----

void MpiJob::send(MPI_Comm comm, const Collective& call) {
  make_progress();
  std::unique_ptr<Outgoing> message;
  {
    const std::lock_guard lock(send_mutex_);
    if (!idle_.empty()) {
      message = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!message) message = std::make_unique<Outgoing>();
  if (message->payload.size() < call.bytes) message->payload.resize(call.bytes);
  if (call.bytes) std::memcpy(message->payload.data(), call.in, call.bytes);
  check_mpi(
      MPI_Isend(message->payload.data(), int(call.bytes), MPI_BYTE, call.peer, call.tag, comm, &message->request),
      describe(call));
  const std::lock_guard lock(send_mutex_);
  outgoing_.push_back(std::move(message));
  num_outgoing_ = int(outgoing_.size());
}

std::chrono::nanoseconds MpiJob::make_progress() {
  if (num_outgoing_ == 0) return kNap;
  const std::lock_guard lock(send_mutex_);
  for (size_t i = 0; i < outgoing_.size();) {
    int is_done = 0;
    MPI_Test(&outgoing_[i]->request, &is_done, MPI_STATUS_IGNORE);
    if (!is_done) {
      ++i;
      continue;
    }
    idle_.push_back(std::move(outgoing_[i]));
    outgoing_.erase(outgoing_.begin() + std::ptrdiff_t(i));
  }
  num_outgoing_ = int(outgoing_.size());
  return kShortNap;
}

void MpiJob::abort(std::string_view why, int status) noexcept {
  std::fprintf(stderr, "rank %d: %.*s\n", rank_, int(why.size()), why.data());
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

}  // namespace weft
