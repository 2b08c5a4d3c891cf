// launched_by_mpi: what Open MPI, MPICH, Intel MPI and Slurm set for the processes that they start.
#include <algorithm>
#include <cstdlib>

#include "weft/comm/mpi/mpi.h"

namespace weft {

bool launched_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"})
    if (std::getenv(name)) return true;
  return false;
}

int mpi_ranks_here() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"})
    if (const char* value = std::getenv(name)) return std::max(1, std::atoi(value));
  return 1;
}

}  // namespace weft
