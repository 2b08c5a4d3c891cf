// launched_by_mpi: what Open MPI, MPICH, Intel MPI and Slurm set for the processes that they start.
#include <cstdlib>

#include "weft/comm/mpi/mpi.h"

namespace weft {

bool launched_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_SIZE"})
    if (std::getenv(name)) return true;
  return false;
}

}  // namespace weft
