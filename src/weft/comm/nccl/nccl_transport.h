// The NCCL transport: collectives and messages that the devices queue themselves.
#pragma once
#include "weft/comm/device_transport.h"

namespace weft {

bool has_nccl();  // built with it

// Null in a build without NCCL, on a world of one rank, and where two ranks share a device. All ranks of `world` call
// it, and agree.
std::unique_ptr<DeviceTransport> make_nccl_transport(Communicator& world, Stream& stream);

}  // namespace weft
