// OpProfile: where the time of a step goes, op by op; and, over meta kernels, the FLOPs and bytes of the same ops.
#pragma once
#include <chrono>
#include <vector>

#include "weft/autograd/context.h"
#include "weft/tensor/device_timer.h"

namespace weft {

// Time and cost are exclusive: an op that runs inside another counts for itself only. On a device the time is that
// which the device took. On the CPU, allocates only when a new op appears.
class OpProfile final : public OpObserver {
 public:
  struct Entry {
    std::string_view op;
    Phase phase;
    double seconds = 0;
    Cost cost;
    int64_t calls = 0;
  };

  explicit OpProfile(Stream& stream);

  void begin(std::string_view op, Phase phase) override;
  void end(std::string_view op, Phase phase) override;
  void reset();  // while no op runs, as entries() too
  const std::vector<Entry>& entries();
  const Entry* find(std::string_view op, Phase phase) const;

 private:
  using Clock = std::chrono::steady_clock;
  // A moment of the host, and its place in the device's queue.
  struct Moment {
    Clock::time_point host;
    int64_t mark = 0;
  };
  struct Running {
    size_t entry;
    Moment since;
    Cost cost;
  };
  struct OnDevice {
    size_t entry;
    int64_t begin, end;  // marks
  };
  Moment now() { return {Clock::now(), timer_ ? timer_->mark() : 0}; }
  void pause(const Moment& now);

  const Stream& stream_;
  std::unique_ptr<DeviceTimer> timer_;  // null on the CPU
  std::vector<OnDevice> on_device_;     // what is not in entries_ yet
  std::vector<Entry> entries_;
  std::vector<Running> running_;
};

std::string_view name_of(OpObserver::Phase phase);

}  // namespace weft
