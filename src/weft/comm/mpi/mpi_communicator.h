// MpiCommunicator: a group of MPI processes: a SharedMemoryTeam on one machine, MPI between machines.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/mpi/mpi_exchange.h"
#include "weft/comm/mpi/mpi_job.h"
#include "weft/comm/shared/team.h"

namespace weft {

class MpiCommunicator final : public Communicator, private TeamHost {
 public:
  // Collective over `comm`, which it takes over; `members` are its ranks' world ranks.
  MpiCommunicator(MpiJob& job, MPI_Comm comm, std::vector<int> members, std::string_view label,
                  const CommOptions& options);
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return int(members_.size()); }
  std::string_view name() const override { return "mpi"; }
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label) override;
  Tensor allocate_shared(Allocator& allocator, DType dtype, Shape shape) override;
  void abort(std::string_view why) noexcept override { job_.abort(why, 1); }

 private:
  void run(const Collective& call) override;
  void receive(const Collective& call);
  bool all_ranks(bool holds, size_t bytes);

  Location locate(const std::byte* data, size_t bytes) const override;
  std::byte* resolve(int rank, Location location) const override;
  void check_alive() const override;
  std::chrono::nanoseconds before_sleep() override { return job_.make_progress(); }
  Watch watch() const override { return {options_.timeout, job_.progress(job_.rank()), job_.notes()}; }
  bool has_core_for_each() const override { return job_.has_core_for_each(); }
  const RankProgress* progress_of(int rank) const override { return job_.progress(members_[size_t(rank)]); }

  MpiJob& job_;
  MPI_Comm comm_;
  std::vector<int> members_, sorted_members_;  // world ranks
  CommOptions options_;
  int rank_ = 0;
  MpiWait wait_;
  std::optional<SharedMemoryTeam> team_;  // one of the two
  std::optional<MpiExchange> exchange_;
};

}  // namespace weft
