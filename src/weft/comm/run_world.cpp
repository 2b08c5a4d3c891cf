// run_world: threads, or the processes of a launcher.
#include "weft/comm/run_world.h"

#include "weft/comm/mpi/mpi.h"
#include "weft/comm/threads/run_ranks.h"

namespace weft {

void run_world(int num_ranks, const std::function<void(Communicator&)>& body, const CommOptions& options) {
  if (!launched_by_mpi()) return run_ranks(num_ranks, body, options);
  run_mpi_ranks(
      [&](Communicator& world) {
        if (world.size() != num_ranks)
          throw UsageError("the mesh has {} ranks, but the launcher started {} processes: make the two equal",
                           num_ranks, world.size());
        body(world);
      },
      options);
}

}  // namespace weft
