// NcclChannel: an NCCL communicator and a CUDA stream of its own, ordered with a rank's work by events.
#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/collective.h"

namespace weft {

inline void check_nccl(ncclResult_t status, const char* what) {
  if (status != ncclSuccess)
    throw Error("NCCL could not {}: {}; with NCCL_DEBUG=INFO in the environment it says more", what,
                ncclGetErrorString(status));
}

// Made and destroyed by all ranks that it joins; making it waits for them. One thread queues at a time.
class NcclChannel {
 public:
  NcclChannel(const ncclUniqueId& id, int rank, int size);
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  cudaStream_t stream() const { return stream_; }
  // `call` over the ranks of the channel: peers are theirs.
  void queue(const Collective& call, int rank, int size);

  // From any thread: ends what is queued, which then fails.
  void abort() noexcept;
  void check_alive() const;  // throws what went wrong on this or on another rank

 private:
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::atomic<bool> is_aborted_{false};
};

// The channels of one rank, so that one failure ends all.
class NcclChannels {
 public:
  void add(NcclChannel& channel);
  void remove(NcclChannel& channel);
  void check_alive();
  void abort() noexcept;

 private:
  std::mutex mutex_;
  std::vector<NcclChannel*> all_;
  bool is_aborted_ = false;
};

}  // namespace weft
