// MpiJob: what all groups of one MPI job share: windows of shared memory, unfinished sends, the way to end.
#pragma once
#include <mpi.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/comm/rank_progress.h"
#include "weft/comm/shared/post.h"
#include "weft/tensor/allocator.h"

namespace weft {

// Throws Error "mpi: `what`: ..." unless `status` is MPI_SUCCESS.
void check_mpi(int status, std::string_view what);

// Memory in which each member of a group owns a part that all of them see.
struct MpiWindow {
  int64_t id = 0;  // the same on every member, and no other window's
  MPI_Win window = MPI_WIN_NULL;
  std::vector<int> members;       // world ranks, ascending
  std::vector<std::byte*> parts;  // of each member, as this process sees them
  std::byte* own = nullptr;
  size_t bytes = 0;  // of the own part
};

class MpiJob final : public BufferOwner {
 public:
  MpiJob();   // starts MPI
  ~MpiJob();  // ends it, unless an exception is on its way
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_one_machine(const std::vector<int>& members) const;
  bool has_core_for_each() const;  // of this machine's ranks

  // Collective over `comm`, whose ranks are `members` in some order. Empty when the system refused on any rank.
  // `own` is zeroed.
  const MpiWindow* make_window(MPI_Comm comm, const std::vector<int>& members, size_t bytes);

  // Tensors in windows. A freed one stays, for the next of its size that the same ranks can see.
  bool has_free_block(const std::vector<int>& members, size_t bytes) const;
  Tensor take_block(const std::vector<int>& members, size_t bytes, Allocator& allocator, DType dtype, Shape shape);
  void add_block(const MpiWindow& window);

  // What of this rank's memory all `members` see.
  Location locate(const std::byte* data, size_t bytes, const std::vector<int>& members) const;
  std::byte* resolve(int world_rank, Location location) const;

  // A send returns at once; its copy of the data is kept until MPI is done with it.
  void send(MPI_Comm comm, const Collective& call);
  // To be called while waiting for others outside MPI, which moves data only inside its calls. Returns for how long
  // the caller may sleep.
  std::chrono::nanoseconds make_progress();

  // The notes of a rank of this machine; null for others, or where the system has refused the memory.
  RankProgress* progress(int world_rank) const { return progress_[size_t(world_rank)]; }
  std::span<RankProgress* const> notes() const { return progress_; }  // of all ranks

  [[noreturn]] void abort(std::string_view why, int status) noexcept;

 private:
  struct Block : Buffer {
    std::vector<int> members;
    Allocator* allocator = nullptr;
    bool is_free = true;
  };
  struct Outgoing {
    std::vector<std::byte> payload;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void release(Buffer& buffer) noexcept override;
  Block* find_free_block(const std::vector<int>& members, size_t bytes) const;
  void free_windows();
  void share_progress(MPI_Comm machine);

  int rank_ = 0, size_ = 1;
  std::vector<int> machines_;  // of each world rank: the lowest rank there
  std::vector<RankProgress*> progress_;
  mutable std::mutex mutex_;  // of what follows
  int64_t windows_made_ = 0;
  std::vector<std::unique_ptr<MpiWindow>> windows_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::mutex send_mutex_;  // of what follows
  std::vector<std::unique_ptr<Outgoing>> outgoing_, idle_;
  std::atomic<int> num_outgoing_{0};
};

}  // namespace weft
