// Communicator: a group of ranks and their collectives, the same for threads, processes and GPUs.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/function_ref.h"
#include "weft/comm/collective.h"
#include "weft/comm/device_transport.h"
#include "weft/comm/pending.h"
#include "weft/comm/rank_progress.h"
#include "weft/tensor/allocator.h"
#include "weft/tensor/device_timer.h"
#include "weft/tensor/tensor.h"

namespace weft {

class CommQueue;

// One finished call, for traces. Views are valid during the observer's call only.
struct CommEvent {
  CommOp op;
  DType dtype;
  std::string_view group;  // the label
  int64_t sequence;
  int64_t bytes;    // Collective::bytes
  bool is_started;  // ran on the communication thread
  std::chrono::steady_clock::time_point begin, end;
  // Not the call, but this rank's wait for one that was started: what was not hidden of it. `sequence` is the call's
  // where no thread runs it, else 0.
  bool is_wait = false;
  int peer = 0, tag = 0;  // as in Collective
  // Where the device queues calls and a timer runs, its marks of what the device did; `begin` and `end` are of
  // queuing.
  DeviceMarks marks = {};
};
using CommObserver = std::function<void(const CommEvent&)>;  // called on the thread that ran the call

// Every rank of a group makes the same calls in the same order. A group of one is the identity, so that no caller
// tests for size 1. Sums are in rank order and in f32 or wider, so that every rank gets the same bits and two runs
// agree. Tensors are f32, f64, bf16, f16, i32 or i64; data moves as bytes in any dtype.
//
// When a rank fails, `abort` wakes every other rank out of whatever it waits in with AbortedError. A collective whose
// kind, size or dtype differs between ranks is an Error that names both sides, never a hang. A collective that some
// rank does not join within CommOptions::timeout is an Error that names the missing ranks and where they were last
// seen: ranks of one machine note their calls and their place for each other, and the time counts from the last
// thing that any of them did (comm/watch.h). After such an Error the group is
// broken: every later collective throws. Tensors that do not fit are refused before anything moves.
//
// A communicator belongs to one thread. Blocking collectives that follow started ones are run behind them, in order;
// send and recv are not held up by them. Calls do not allocate in the steady state.
class Communicator {
 public:
  virtual ~Communicator();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;         // "threads", "mpi", ...
  std::string_view label() const { return label_; }  // of the group; the group of all ranks is "world"

  // Ranks that give the same color form a group, ordered by (key, rank). `label` names it in messages and traces.
  virtual std::unique_ptr<Communicator> split(int color, int key, std::string_view label) = 0;

  // The same where every rank knows everybody's color; a group keeps the order of the ranks.
  virtual std::unique_ptr<Communicator> split_by(FunctionRef<int(int rank)> color_of, std::string_view label) {
    return split(color_of(rank()), rank(), label);
  }

  // Memory that the ranks of a machine reduce in place, fastest of all: use it for gradient buckets. Other tensors
  // are served too. Counted by `allocator` as its own. A collective call: every rank of the group asks for as much.
  virtual Tensor allocate_shared(Allocator& allocator, DType dtype, Shape shape);

  // ---- collectives: return when this rank's part is done ----
  void all_reduce(const Tensor& x, Reduction = Reduction::sum);  // in place
  void all_gather(const Tensor& out, const Tensor& in);          // out = every rank's `in`, in rank order
  void reduce_scatter(const Tensor& out, const Tensor& in);      // out = this rank's part of the sum
  // Both may be in place: the small tensor may be this rank's part of the large one.
  void broadcast(const Tensor& x, int root);  // in place
  // Sends in_counts[r] rows (of dim 0) of `in` to rank r and receives out_counts[r] rows from it; rows in rank order.
  // `out` and `in` do not overlap.
  void all_to_all(const Tensor& out, std::span<const int64_t> out_counts, const Tensor& in,
                  std::span<const int64_t> in_counts);
  void send(const Tensor& x, int to, int tag);  // buffered: returns without waiting for the receiver
  void recv(const Tensor& x, int from, int tag);
  void barrier();

  // ---- the same, started on the group's communication thread; the Pending owns its tensors until waited for ----
  Pending start_all_reduce(Tensor x, Reduction = Reduction::sum);
  Pending start_all_gather(Tensor out, Tensor in);
  Pending start_reduce_scatter(Tensor out, Tensor in);

  // Tensors on this stream's device may be given too; to groups split off later as well. It is the rank's, and
  // outlives such calls. A collective call where the device is not the CPU.
  void use_stream(Stream& stream);

  // What this rank does now, for the messages of ranks that wait for it in vain: at most 87 bytes, copied. Holds for
  // the rank, whichever of its groups is told. Takes some 20 ns. `step` is shown as it is; -1: none.
  void set_place(std::string_view what, int64_t step) noexcept {
    if (own_progress_) own_progress_->set_place(what, step);
  }

  // Counts this rank's signs of life, for whatever works long between two calls; null where nobody waits.
  std::atomic<uint64_t>* pulse() noexcept { return own_progress_ ? &own_progress_->pulse() : nullptr; }
  // A patient rank waits for others without a limit, in any group.
  void set_patient(bool is_patient) noexcept {
    if (own_progress_) own_progress_->set_patient(is_patient);
  }

  // Throws AbortedError when the job has been ended; costs no call.
  virtual void check_alive() const {}

  // Ends the whole job: every other rank's current or next call on any group throws AbortedError with `why`.
  virtual void abort(std::string_view why) noexcept = 0;

  // Bytes this rank sent and the seconds it spent inside collectives, since the group was made.
  struct Stats {
    int64_t calls = 0;
    int64_t bytes_sent = 0;      // of a bandwidth-optimal algorithm
    double seconds = 0;          // in collectives, on whichever thread
    double exposed_seconds = 0;  // of these, those in which the caller waited
  };
  Stats stats() const;

  // Groups that are split off later inherit both. To be set while nothing is started. The timer is the rank's.
  void set_observer(CommObserver observer, DeviceTimer* timer = nullptr);

 protected:
  explicit Communicator(std::string_view label);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Every call but send and recv comes in the order of its sequence, on one thread at a time; send and recv come on
  // the caller's thread, perhaps while a collective runs on the other.
  virtual void run(const Collective& call) = 0;

  // A transport that moves nothing needs no thread: started calls are over when they have begun.
  virtual bool has_thread() const { return true; }

  // Whether this machine has a core for each of the job's ranks on it: else one that waits keeps another from its
  // work.
  virtual bool has_core_for_each() const { return true; }

  // To be called first by the destructor of each transport: ends the communication thread.
  void finish() noexcept;

  // Runs a collective of the transport's own, such as the exchange inside split.
  void collective(Collective call);

  // This rank has failed while a collective was started: what waits for other ranks must give up.
  bool is_given_up() const { return is_given_up_.load(std::memory_order_relaxed); }

  // To be called by split: what the group has from this one.
  void pass_on_to(Communicator& group) const;

  // To be called by the constructor of each transport whose ranks can see each other's notes.
  void set_own_progress(RankProgress* progress) { own_progress_ = progress; }
  virtual const RankProgress* progress_of(int /*rank*/) const { return nullptr; }  // null: not known here
  // "; rank 1 was last seen in ..." for each rank that keeps this one waiting in `call`, as far as is known.
  std::string whereabouts(const Collective& call) const;

 private:
  friend class Pending;
  Pending start(Collective call, Tensor out, Tensor in);
  void wait_for(uint32_t ticket, bool is_on_device);
  bool is_queued_by_device(const Collective& call) const { return call.is_on_device && device_->queues_calls(); }
  template <class Run>
  void note(const Collective& call, bool is_started, Run&& run);
  void give_up() noexcept { is_given_up_.store(true); }
  void execute(const Collective& call, bool is_started);
  void point_to_point(Collective call);
  void check_reach(const Collective& call) const;

  std::string label_;
  CommObserver observer_;
  DeviceTimer* timer_ = nullptr;
  RankProgress* own_progress_ = nullptr;
  int64_t sequence_ = 0, messages_ = 0;
  std::atomic<bool> is_given_up_{false};
  std::atomic<int64_t> calls_{0}, bytes_sent_{0};
  std::atomic<double> seconds_{0}, exposed_seconds_{0};
  std::unique_ptr<DeviceTransport> device_;  // null: memory of the host only
  std::unique_ptr<CommQueue> queue_;         // made by the first start_*
};

// Where all ranks of a job do together what may take some of them long, such as writing files.
class Patience {
 public:
  explicit Patience(Communicator& world) : world_(world) { world_.set_patient(true); }
  ~Patience() { world_.set_patient(false); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  Communicator& world_;
};

}  // namespace weft
