// The NCCL transport of a build without NCCL: there is none.
#include "weft/comm/nccl/nccl_transport.h"

namespace weft {

bool has_nccl() { return false; }
std::unique_ptr<DeviceTransport> make_nccl_transport(Communicator&, Stream&) { return nullptr; }

}  // namespace weft
