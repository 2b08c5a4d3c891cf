// NcclMessenger: messages from one rank to one other, in order, by a thread that may wait for the other.
#pragma once
#include <deque>
#include <memory>

#include "weft/comm/comm_queue.h"
#include "weft/comm/communicator.h"
#include "weft/comm/nccl/nccl_channel.h"
#include "weft/tensor/stream.h"

namespace weft {

// NCCL's messages wait for each other: one stream for all of them would stop where two ranks send first and receive
// then. So each direction between two ranks has a channel of its own, and what is sent is copied. NCCL has no tags
// either: a word on the host goes ahead of each message, and what comes before it is wanted is kept.
class NcclMessenger {
 public:
  // Both ranks make one. device: that of the rank.
  NcclMessenger(Communicator& group, int peer, bool is_sender, int device, Stream& stream,
                std::shared_ptr<NcclChannels> channels);
  ~NcclMessenger();

  void send(const Collective& call);  // returns at once
  void recv(const Collective& call);  // returns when it is there

 private:
  static constexpr size_t kEvents = 512;  // more than calls can be under way

  struct Announced {
    int64_t tag, bytes;
  };
  struct Sent {
    uint32_t ticket;
    Tensor copy;
  };
  struct Kept {
    int tag;
    Tensor message;
  };
  void announce(const Announced& message);
  Announced hear();
  bool take_kept(const Collective& call);
  void receive(std::byte* out, size_t bytes);
  uint32_t push(Collective call);
  void move(const Collective& call);  // on the thread

  Communicator& group_;
  int peer_;
  bool is_sender_;
  int device_;
  Stream& stream_;
  std::shared_ptr<NcclChannels> channels_;
  ncclUniqueId id_;
  std::unique_ptr<NcclChannel> channel_;  // made by the thread
  std::vector<cudaEvent_t> ready_;        // of each call: what its rank had queued before
  int64_t pushed_ = 0;
  Allocator memory_{Device::cuda};  // of copies
  std::deque<Sent> sent_;
  std::deque<Kept> kept_;
  CommQueue queue_;  // last: its thread ends first
};

}  // namespace weft
