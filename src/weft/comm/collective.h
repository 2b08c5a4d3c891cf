// Collective: one call on a group as the transports see it, and the words for it in messages.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/tensor/dtype.h"

namespace weft {

enum class Reduction : uint8_t { sum, max, min };

enum class CommOp : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier,
  split,            // an all_gather of a few bytes
  allocate_shared,  // likewise
};
std::string_view name_of(CommOp op);

// Memory belongs to the caller until the call is done.
struct Collective {
  CommOp op = CommOp::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  int peer = 0;  // broadcast: the root; send: the receiver; recv: the sender
  int tag = 0;
  int64_t sequence = 0;  // numbers the collectives of a group from 1; send and recv are numbered apart
  // all_reduce, broadcast, send, recv: the whole tensor, in `out` and `in` alike. all_gather, split, allocate_shared:
  // one rank's `in`. reduce_scatter: one rank's `out`. all_to_all: all of `in`.
  size_t bytes = 0;
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
  size_t row_bytes = 0;  // all_to_all
  std::span<const int64_t> out_counts, in_counts;
  bool is_on_device = false;  // `out` and `in`; transports see calls over memory of the host only
};

// "all_reduce of 4096 bytes f32"
std::string describe(const Collective& call);

// Bytes that one rank sends in a bandwidth-optimal algorithm over `size` ranks.
int64_t bytes_sent(const Collective& call, int rank, int size);

// What every transport can be told.
struct CommOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of one rank waiting for others in one call
  // Processes of one machine meet in shared memory; false sends everything through MPI, as between machines.
  bool share_memory = true;
};

}  // namespace weft
