// Communicator: a group of ranks and their collectives, the same for threads, processes and GPUs.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "weft/comm/pending.h"
#include "weft/tensor/allocator.h"
#include "weft/tensor/tensor.h"

namespace weft {

enum class Reduction : uint8_t { sum, max, min };

// Every rank of a group makes the same calls in the same order. A group of one is the identity, so that no caller
// tests for size 1. Sums are in rank order and in f32 or wider, so that every rank gets the same bits and two runs
// agree. Tensors are f32, f64, bf16, f16, i32 or i64; data moves as bytes in any dtype.
//
// When a rank fails, `abort` wakes every other rank out of whatever it waits in with AbortedError. A collective whose
// kind, size or dtype differs between ranks is an Error that names both sides, never a hang.
class Communicator {
 public:
  virtual ~Communicator();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "threads", "mpi", ...

  // Ranks that give the same color form a group, ordered by (key, rank). `label` names it in messages and traces.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string_view label) = 0;

  // Memory that the ranks of a machine reduce in place, fastest of all: use it for gradient buckets. Other tensors
  // are served too. Counted by `allocator` as its own.
  virtual Tensor allocate_shared(Allocator& allocator, DType dtype, Shape shape);

  // ---- collectives: return when this rank's part is done ----
  void all_reduce(const Tensor& x, Reduction = Reduction::sum);            // in place
  void all_gather(const Tensor& out, const Tensor& in);                    // out = every rank's `in`, in rank order
  void reduce_scatter(const Tensor& out, const Tensor& in);                // out = this rank's part of the sum
  void broadcast(const Tensor& x, int root);                               // in place
  // Sends in_counts[r] rows of `in` to rank r and receives out_counts[r] rows from it; rows in rank order.
  void all_to_all(const Tensor& out, std::span<const int64_t> out_counts, const Tensor& in,
                  std::span<const int64_t> in_counts);
  void send(const Tensor& x, int to, int tag);   // buffered: returns without waiting for the receiver
  void recv(const Tensor& x, int from, int tag);
  void barrier();

  // ---- the same, started on the group's communication thread; the Pending owns its tensors until waited for ----
  Pending start_all_reduce(Tensor x, Reduction = Reduction::sum);
  Pending start_all_gather(Tensor out, Tensor in);
  Pending start_reduce_scatter(Tensor out, Tensor in);

  // Ends the whole job: every other rank's current or next call on any group throws AbortedError with `why`.
  virtual void abort(std::string_view why) noexcept = 0;

  // Bytes this rank sent and the seconds it spent inside collectives, since the group was made.
  struct Stats {
    int64_t bytes_sent = 0;
    double seconds = 0;          // in collectives, on whichever thread
    double exposed_seconds = 0;  // of these, those in which the caller waited
  };
  Stats stats() const;
};

}  // namespace weft
