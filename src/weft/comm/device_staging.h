// DeviceStaging: tensors on a device go through host memory, over transports that move only that.
#pragma once
#include "weft/comm/communicator.h"
#include "weft/comm/device_transport.h"

namespace weft {

// Bytes of a call's `in` and `out` over `size` ranks that this rank gives and takes: the root of a broadcast and the
// sender only give, the others only take.
struct StagedBytes {
  size_t in = 0, out = 0;
};
StagedBytes staged_bytes(const Collective& call, int rank, int size);

// Several ranks may share one device, which NCCL refuses. A call waits for what its rank has queued, so nothing
// overlaps with the rank's kernels but the exchange itself. Collectives of a group of one are copies on the device,
// which its rank's stream queues.
class DeviceStaging final : public DeviceTransport {
 public:
  DeviceStaging(Communicator& group, Stream& stream) : group_(group), stream_(stream) {}

  Stream& stream() override { return stream_; }
  std::unique_ptr<DeviceTransport> for_group(Communicator& group) override {
    return std::make_unique<DeviceStaging>(group, stream_);
  }
  void prepare(const Collective& call) override;
  void run(const Collective& call, bool is_on_comm_thread, OnHost on_host) override;
  bool queues_calls() const override { return group_.size() == 1; }
  uint32_t start(const Collective& call) override;
  void wait(uint32_t) override {
    timed(nullptr, [] {});  // the rank's stream is in order
  }

 private:
  bool is_alone_in(const Collective& call) const {
    return group_.size() == 1 && call.op != CommOp::send && call.op != CommOp::recv;
  }
  Communicator& group_;
  Stream& stream_;
  std::unique_ptr<DeviceQueue> own_queue_;  // of the communication thread
  Allocator host_memory_;
};

}  // namespace weft
