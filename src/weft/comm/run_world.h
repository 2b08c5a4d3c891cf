// run_world: runs a function on every rank, wherever the ranks are.
#pragma once
#include <functional>

#include "weft/comm/communicator.h"

namespace weft {

// Where a launcher (mpirun, srun) started one process a rank, this process is its rank, and num_ranks must be how
// many it started: UsageError otherwise. Else the ranks are num_ranks threads of this process.
void run_world(int num_ranks, const std::function<void(Communicator&)>& body, const CommOptions& options = {});

}  // namespace weft
