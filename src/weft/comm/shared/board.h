// Board: the memory in which the ranks of a group meet, laid out for threads and for processes alike.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/comm/shared/post.h"
#include "weft/comm/signal.h"

namespace weft {

// A view of zeroed memory of `bytes_for` bytes, aligned to 64: a barrier, and a seat for every rank. What a seat
// holds is doubled, for even and odd rounds: a rank that is through with one round may write the next while another
// rank still reads.
class Board {
 public:
  static constexpr size_t kPayload =
      1024;  // bytes of a call that travels inside the board; from here on direct is faster

  static size_t bytes_for(int size, size_t stage_bytes);
  Board(std::byte* memory, int size, size_t stage_bytes) : memory_(memory), size_(size), stage_bytes_(stage_bytes) {}

  struct alignas(64) Header {
    std::atomic<uint64_t> arrivals;  // generation << 32 | ranks that have arrived
    Signal signal;                   // raised when a generation ends, a rank leaves, or the job is aborted
    alignas(64) std::atomic<int64_t> next_chunk;  // of a large all_reduce: zero between calls
  };
  struct alignas(64) Seat {
    Post posts[2];
    std::atomic<uint64_t> round;     // the last one this rank arrived in
    std::atomic<uint64_t> parted;    // the last one in which it was done with the others' tensors
    std::atomic<uint64_t> meetings;  // its waits for all ranks so far; a call may have many
    std::atomic<bool> has_left;
    alignas(64) std::byte payload[2][kPayload];
  };

  int size() const { return size_; }
  size_t stage_bytes() const { return stage_bytes_; }
  Header& header() const { return *reinterpret_cast<Header*>(memory_); }
  Seat& seat(int rank) const;
  // Row counts of an all_to_all, in and out.
  std::span<int64_t> in_counts(int rank, int parity) const { return counts(rank, parity * 2); }
  std::span<int64_t> out_counts(int rank, int parity) const { return counts(rank, parity * 2 + 1); }
  // Memory for tensors that other ranks cannot see; one half is written while the other is read.
  std::byte* stage(int rank, int64_t half) const;

 private:
  static size_t counts_bytes(int size);
  std::span<int64_t> counts(int rank, int row) const;

  std::byte* memory_;
  int size_;
  size_t stage_bytes_;
};

}  // namespace weft
