// NcclMessenger: messages from one rank to one other, in order, by a thread that may wait for the other.
#pragma once
#include <deque>
#include <memory>

#include "weft/comm/comm_queue.h"
#include "weft/comm/nccl/nccl_channel.h"
#include "weft/tensor/stream.h"

namespace weft {

// NCCL's messages wait for each other: one stream for all of them would stop where two ranks send first and receive
// then. So each direction between two ranks has a channel of its own, and what is sent is copied.
class NcclMessenger {
 public:
  // Both ranks make one, with the same id. device: that of the rank.
  NcclMessenger(const ncclUniqueId& id, bool is_sender, int device, Stream& stream,
                std::shared_ptr<NcclChannels> channels);
  ~NcclMessenger();

  void send(const Collective& call);  // returns at once
  void recv(const Collective& call);  // returns when it is there

 private:
  static constexpr size_t kEvents = 512;  // more than calls can be under way
  uint32_t push(Collective call);
  void move(const Collective& call);  // on the thread

  ncclUniqueId id_;
  bool is_sender_;
  int device_;
  Stream& stream_;
  std::shared_ptr<NcclChannels> channels_;
  std::unique_ptr<NcclChannel> channel_;  // made by the thread
  std::vector<cudaEvent_t> ready_;        // of each call: what its rank had queued before
  int64_t pushed_ = 0;
  struct Sent {
    uint32_t ticket;
    Tensor copy;
  };
  std::deque<Sent> sent_;
  CommQueue queue_;  // last: its thread ends first
};

}  // namespace weft
