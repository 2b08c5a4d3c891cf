// recorded_kernels: a table each of whose calls also leaves an event on the stream that it runs on.
#pragma once
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/kernels/kernels.h"
#include "weft/plan/step_trace.h"

namespace weft::plan {

// The stream that recorded kernels need.
class RecordedStream : public Stream {
 public:
  // timed: kernels that are run and timed; null: nothing is computed.
  RecordedStream(ThreadTeam& team, Allocator& allocator, std::vector<Event>& events, const Kernels* timed = nullptr)
      : Stream(team, allocator), events_(events), timed_(timed) {}

  void set_recording(bool is_on) { is_recording_ = is_on; }
  bool is_recording() const { return is_recording_; }
  void add(const Event& event) {
    if (!is_recording_) return;
    if (events_.size() > merges_from_ && add_to(events_.back(), event)) return;
    events_.push_back(event);
  }
  // Products that follow are one event where they are alike.
  void set_merging(bool is_on) { merges_from_ = is_on ? events_.size() : SIZE_MAX; }
  void set_repeats(int32_t count) { repeats_ = count; }  // each kernel that follows stands for so many
  int32_t repeats() const { return repeats_; }
  void set_phase(OpObserver::Phase phase) { phase_ = phase; }  // of the kernels that follow
  OpObserver::Phase phase() const { return phase_; }
  const Kernels* timed() const { return timed_; }
  int64_t num_events() const { return int64_t(events_.size()); }

 private:
  // Whether `all` are products like `one`, which then counts with them.
  static bool add_to(Event& all, const Event& one);

  std::vector<Event>& events_;
  const Kernels* timed_;
  bool is_recording_ = false;
  size_t merges_from_ = SIZE_MAX;  // the first event that others may count with
  int32_t repeats_ = 1;
  OpObserver::Phase phase_ = OpObserver::Phase::forward;
};

// What an observer of communicators adds to the stream.
void record(RecordedStream& stream, const CommEvent& event);

// `base`: the table that the stream runs. Every kernel must be given a RecordedStream.
Kernels recorded_kernels(const Kernels& base = meta_kernels());

}  // namespace weft::plan
