// DeviceTransport: the choice among them.
#include "weft/comm/device_transport.h"

#include "weft/comm/device_staging.h"
#include "weft/comm/nccl/nccl_transport.h"

namespace weft {

uint32_t DeviceTransport::start(const Collective& call) {
  throw Error("{}: a transport through the host does not queue calls", describe(call));
}
void DeviceTransport::wait(uint32_t) {}

std::unique_ptr<DeviceTransport> make_device_transport(Communicator& world, Stream& stream) {
  if (auto nccl = make_nccl_transport(world, stream)) return nccl;
  return std::make_unique<DeviceStaging>(world, stream);
}

}  // namespace weft
