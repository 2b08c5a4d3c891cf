// recorded_kernels: the meta table, each of whose calls also leaves an event on the stream that it runs on.
#pragma once
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/kernels/kernels.h"
#include "weft/plan/step_trace.h"

namespace weft::plan {

// The stream that recorded kernels need.
class RecordedStream : public Stream {
 public:
  RecordedStream(ThreadTeam& team, Allocator& allocator, std::vector<Event>& events)
      : Stream(team, allocator), events_(events) {}

  void set_recording(bool is_on) { is_recording_ = is_on; }
  bool is_recording() const { return is_recording_; }
  void add(const Event& event) {
    if (is_recording_) events_.push_back(event);
  }
  int64_t num_events() const { return int64_t(events_.size()); }

 private:
  std::vector<Event>& events_;
  bool is_recording_ = false;
};

// What an observer of communicators adds to the stream.
void record(RecordedStream& stream, const CommEvent& event);

// Every kernel must be given a RecordedStream.
Kernels recorded_kernels();

}  // namespace weft::plan
