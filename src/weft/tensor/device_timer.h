// DeviceTimer: when a device came to places in its queue, in the host's time.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace weft {

class Stream;

// Belongs to one rank. Marks are queued like work and nothing waits for them. Throws Error with the device's words.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;

  // Forgets all marks; returns when the queue is empty, which is the moment that times count from.
  virtual void start() = 0;
  // Between start and stop.
  virtual bool is_running() const = 0;
  // The place in the queue behind what was queued before; counts from 0 since start(). Of another queue of the
  // device, whose handle is given, what is marked is done before the rank's own queue is empty.
  virtual int64_t mark(void* queue = nullptr) = 0;
  // When the device came to each mark, in nanoseconds of std::chrono::steady_clock, when all that was queued is done;
  // marks are forgotten. The device's clock tells times apart to about half a microsecond.
  virtual std::vector<int64_t> stop() = 0;
};

// Two marks of a timer, of the beginning and the end of something; none.
struct DeviceMarks {
  int64_t begin = -1, end = -1;
  bool are_set() const { return begin >= 0; }
};

// Null where work is done when it is called, and the host's clock is enough. `stream` outlives the timer.
std::unique_ptr<DeviceTimer> make_timer(Stream& stream);

}  // namespace weft
