// Stands in for the MPI communicator in builds without MPI.
#include "weft/base/error.h"
#include "weft/comm/mpi/mpi.h"

namespace weft {
namespace {

[[noreturn]] void throw_no_mpi() {
  throw Error(
      "this weft was built without MPI; install libopenmpi-dev, configure again with -DWEFT_MPI=ON and rebuild");
}

}  // namespace

class MpiJob {};

MpiSession::MpiSession() { throw_no_mpi(); }

MpiSession::~MpiSession() = default;

std::unique_ptr<Communicator> MpiSession::world(const CommOptions&) { throw_no_mpi(); }

void run_mpi_ranks(const std::function<void(Communicator&)>&, const CommOptions&) { throw_no_mpi(); }

}  // namespace weft
