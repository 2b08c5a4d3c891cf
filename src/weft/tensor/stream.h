// Stream: the ordered queue of device work of one rank, with its threads and scratch memory.
#pragma once
#include <algorithm>
#include <vector>

#include "weft/base/thread_team.h"
#include "weft/tensor/allocator.h"
#include "weft/tensor/device_queue.h"

namespace weft {

// FLOPs and bytes of main memory traffic of the kernels run on a stream; only `meta` kernels count them.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// `rows` pieces of a tensor's bytes, all of one length: the first begins at `offset`, each next one `pitch` further.
struct RowsAt {
  const Tensor& tensor;
  size_t offset = 0, pitch = 0;
};

// On the CPU work runs when it is called, on the team's threads; on another device it runs in the order of its queue.
// A stream belongs to one rank and one thread.
class Stream {
 public:
  Stream(ThreadTeam& team, Allocator& allocator)
      : team_(team), allocator_(allocator), queue_(make_queue(allocator.device())), scratch_(size_t(team.size())) {}

  ThreadTeam& team() { return team_; }
  Allocator& allocator() { return allocator_; }
  // Of the allocator's device. Throws Error on the CPU, which has none.
  DeviceQueue& queue() {
    check(queue_ != nullptr, "the CPU has no queue");
    return *queue_;
  }
  // Until all work is done.
  void wait() {
    if (queue_) queue_->wait();
  }
  // to = from: of one size in bytes, on any two devices that hold bytes. Returns when `from` may change and, where
  // `to` lies on the host, when it is done.
  void copy(const Tensor& to, const Tensor& from);
  // `rows` pieces of `row_bytes` each, between two tensors of this stream's device.
  void copy_rows(RowsAt to, RowsAt from, int64_t rows, size_t row_bytes);

  // Memory for one worker inside one kernel call, kept for the next; contents are undefined. 64-byte aligned.
  std::byte* scratch(int worker, size_t bytes) {
    Tensor& t = scratch_[size_t(worker)];
    if (!t || t.bytes() < bytes) t = host_memory_.empty(DType::u8, {int64_t(bytes)});
    return static_cast<std::byte*>(t.raw());
  }

  // Gives every worker as much scratch as the one with most: which worker meets which piece of work is chance, and
  // after this call between kernels none of them has to ask for more of what another has had.
  void level_scratch() {
    size_t most = 0;
    for (const Tensor& t : scratch_) most = std::max(most, t ? t.bytes() : 0);
    for (size_t worker = 0; most > 0 && worker < scratch_.size(); ++worker) scratch(int(worker), most);
  }
  int64_t scratch_bytes() const { return host_memory_.stats().live_bytes; }  // not part of the allocator's figures
  // Of scratch, and of what passes through the host on its way to and from a device.
  Allocator& host_memory() { return host_memory_; }

  Cost cost;

 private:
  static std::unique_ptr<DeviceQueue> make_queue(Device device);  // null where work runs when it is called

  ThreadTeam& team_;
  Allocator& allocator_;
  std::unique_ptr<DeviceQueue> queue_;
  Allocator host_memory_;
  std::vector<Tensor> scratch_;  // of each worker
};

}  // namespace weft
