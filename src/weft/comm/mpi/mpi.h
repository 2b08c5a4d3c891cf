// Ranks that are MPI processes, on one machine or several. Built without MPI, everything here but what looks at the
// environment throws.
#pragma once
#include <functional>
#include <memory>

#include "weft/comm/communicator.h"

namespace weft {

// Whether mpirun, mpiexec or srun started this process as one of several ranks. Looks at the environment only.
bool launched_by_mpi();
// How many of them are on this machine, as far as the launcher says; 1 otherwise.
int mpi_ranks_here();

class MpiJob;

// MPI from its start to its end: one at a time in a process. Must outlive its communicators and the tensors of their
// allocate_shared. When it is destroyed by an exception MPI is left as it is, since the other ranks may never come to
// its end: the process should say what went wrong and exit with a status that is not 0, which ends the job.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // All ranks. A collective call. Ranks of one machine meet in shared memory and reduce what allocate_shared gave
  // them in place; groups that span machines go through MPI. Sums are in rank order either way.
  std::unique_ptr<Communicator> world(const CommOptions& options = {});

 private:
  std::unique_ptr<MpiJob> job_;
};

// Runs body on every rank of an MPI job. When it throws, writes "rank 1: message" to stderr and ends all ranks with
// status 1, or 2 for a UsageError.
void run_mpi_ranks(const std::function<void(Communicator&)>& body, const CommOptions& options = {});

}  // namespace weft
