// StepGraphs: steps that repeat are queued as CUDA graphs, a segment of their work at a time (ADR 0019 and 0032).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "weft/tensor/cuda/op_bytes.h"

namespace weft {

// A step's host code runs as ever, and tells each piece of work as bytes. The first step of a key queues them one by
// one and keeps a record; in later ones each is compared with the record and held back, until those of a segment are
// known to be the same: then a graph of them is launched. What is not the same ends the segment: what was held back
// is queued one by one, and the rest of the step becomes the new record. So nothing is queued but what the host
// wanted, whatever it depends on: other shapes, other addresses, numbers that the host read in the middle of a step.
// What is uploaded may differ in its contents: the record has pinned memory for it, from which graphs copy.
class StepGraphs {
 public:
  // wait: until an event of the stream has come, or throws when that will not be.
  StepGraphs(cudaStream_t stream, std::function<void(cudaEvent_t)> wait);
  ~StepGraphs();  // when the stream's work is done
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;

  // Steps of a key are likely to be the same.
  void begin(uint64_t key);
  void end();
  void drop() noexcept;                  // instead of end(), of a step that failed: what was held back is forgotten
  void stop() { has_given_up_ = true; }  // between steps: they are queued one by one from now on
  bool is_in_step() const { return plan_ != nullptr; }

  // Within a step: add() queues the work that was written to description() since it was asked for, whose first word
  // says what it is and the others with what. issue: queues it on the stream it is given, as often as it is called,
  // or throws Error when the device refuses.
  OpBytes& description() {
    description_.clear();
    return description_;
  }
  template <class Issue>
  void add(const Issue& issue) {
    if (is_beyond())
      issue(stream_), ++stats_.issued;
    else if (is_apart())
      pass_apart(), issue(stream_);
    else if (!is_as_recorded())
      record(issue);
  }
  // Bytes of the host as device memory until the end of the step; null when the caller has to bring them there.
  const void* upload(const void* from, size_t bytes);
  // All that was added is queued, before the caller queues or waits for something of which this knows nothing.
  void flush();
  // The same of the step that the calling thread is in: what was held back may use memory that is given back.
  static void flush_this_thread() noexcept;

  struct Stats {
    int64_t captured = 0, launched = 0;  // graphs
    int64_t issued = 0;                  // pieces of work, one by one
    int64_t plans = 0;                   // that are kept
  };
  Stats stats() const;

  static constexpr size_t kMostPlans = 96;
  static constexpr size_t kUploadBytes = size_t(1) << 20;  // of a step, on the host and on the device
  // A step's first graph is short, so that a card begins early; each may have twice as many as the one before, which a
  // host compares while the card is busy: between graphs no kernel begins before the last one's end. Of fewer than the
  // fewest, no graph pays.
  static constexpr size_t kFirstOps = 32, kMostOps = 256, kFewestOps = 3;
  // Of a step; what comes after them is queued one by one. Steps of more have kernels that hide how they are queued.
  static constexpr size_t kMostOpsOfStep = size_t(1) << 14;

 private:
  // An op that changes so often, each time within so many steps after the time before, is left out of graphs.
  static constexpr int kMostChanges = 3;
  static constexpr int64_t kSoon = 16;
  using Issue = std::function<void(cudaStream_t)>;
  struct Op {
    std::string bytes;
    Issue issue;
    size_t slot = 0, slot_end = 0;  // of an upload
    int changes = 0;                // how often it was not as recorded, each time soon after the time before
    int64_t last_change = 0;        // in which of the key's steps it was not; 0: in none
    bool is_apart() const { return changes >= kMostChanges; }
    bool is_upload() const { return slot < slot_end; }
  };
  struct Segment {
    size_t begin = 0, end = 0;  // in ops
    bool is_closed = false;     // what is recorded next begins another
    cudaGraphExec_t graph = nullptr;
  };
  struct Plan;

  Plan* plan_of(uint64_t key);
  const std::byte* same_upload(const void* from, size_t bytes);
  bool is_beyond() const;
  bool is_as_recorded();
  bool is_apart() const;
  void pass_apart();
  void record(Issue issue);
  Op& new_op(bool has_room = true);
  void cut(bool has_changed);
  void issue(const Segment& segment);
  void issue_to_capture(const Segment& segment);
  void finish_segment();
  cudaGraphExec_t capture(const Segment& segment);
  void give_up(const char* what, cudaError_t status);

  cudaStream_t stream_;
  std::function<void(cudaEvent_t)> wait_;
  cudaStream_t capturing_ = nullptr;        // a stream of its own: captures see no other work
  std::list<std::unique_ptr<Plan>> plans_;  // the most recently used first
  Plan* plan_ = nullptr;                    // of the step that runs
  size_t at_ = 0;                           // its next op
  size_t segment_ = 0;                      // which that one is in, while the record is compared
  bool is_recording_ = false;
  // While a record is replaced: the op before this one was as in the old one; or it was not, by itself.
  bool was_same_ = false, may_count_ = false;
  bool has_given_up_ = false;
  std::vector<std::pair<size_t, size_t>> uploads_;  // of this step that differ: slot and bytes
  OpBytes description_;
  Stats stats_;
};

}  // namespace weft
