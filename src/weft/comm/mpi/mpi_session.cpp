// MpiSession: the group of all MPI ranks, and what becomes of a failure.
#include <numeric>

#include "weft/base/error.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/mpi/mpi_communicator.h"
#include "weft/comm/mpi/mpi_job.h"

namespace weft {
namespace {

std::unique_ptr<Communicator> make_world(MpiJob& job, const CommOptions& options) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "duplicate the group of all ranks");
  std::vector<int> members(size_t(job.size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<MpiCommunicator>(job, comm, std::move(members), "world", options);
}

}  // namespace

MpiSession::MpiSession() : job_(std::make_unique<MpiJob>()) {}

MpiSession::~MpiSession() = default;

std::unique_ptr<Communicator> MpiSession::world(const CommOptions& options) { return make_world(*job_, options); }

void run_mpi_ranks(const std::function<void(Communicator&)>& body, const CommOptions& options) {
  MpiJob job;
  try {
    body(*make_world(job, options));
  } catch (const UsageError& error) {
    job.abort(error.what(), 2);
  } catch (const std::exception& error) {
    job.abort(error.what(), 1);
  } catch (...) {
    job.abort("an exception of unknown type", 1);
  }
}

}  // namespace weft
