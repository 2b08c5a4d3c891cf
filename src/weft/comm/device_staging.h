// DeviceStaging: the collectives of tensors on a device, through host memory, for transports that move only that.
#pragma once
#include <memory>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/tensor/stream.h"

namespace weft {

// Bytes of a call's `in` and `out` over `size` ranks, on a rank that gives or takes them: the root of a broadcast and
// the sender only give, the others only take.
struct StagedBytes {
  size_t in = 0, out = 0;
};
StagedBytes staged_bytes(const Collective& call, int rank, int size);

// Several ranks may share one device, which NCCL refuses. A call waits for what its rank has queued, so nothing
// overlaps with the rank's kernels but the exchange itself.
class DeviceStaging {
 public:
  explicit DeviceStaging(Stream& stream);  // of the rank; it outlives this

  Stream& stream() { return stream_; }

  // On the rank's thread, before a call goes to another one.
  void prepare();

  // `run` gets the same call over memory of the host. After `prepare` on any thread, else on the rank's.
  void run(const Collective& call, int rank, int size, bool is_prepared, FunctionRef<void(const Collective&)> run);

 private:
  Stream& stream_;
  std::unique_ptr<DeviceQueue> own_queue_;  // of the communication thread
  Allocator host_memory_;
};

}  // namespace weft
