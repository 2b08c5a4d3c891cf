// OpProfile: where the time of a step goes, op by op; and, over meta kernels, the FLOPs and bytes of the same ops.
#pragma once
#include <chrono>
#include <vector>

#include "weft/autograd/context.h"

namespace weft {

// Time and cost are exclusive: an op that runs inside another counts for itself only. Allocates only when a new op
// appears.
class OpProfile final : public OpObserver {
 public:
  struct Entry {
    std::string_view op;
    Phase phase;
    double seconds = 0;
    Cost cost;
    int64_t calls = 0;
  };

  explicit OpProfile(const Stream& stream) : stream_(stream) {
    entries_.reserve(128);
    running_.reserve(16);
  }

  void begin(std::string_view op, Phase phase) override;
  void end(std::string_view op, Phase phase) override;
  void reset() { entries_.clear(); }
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(std::string_view op, Phase phase) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    size_t entry;
    Clock::time_point since;
    Cost cost;
  };
  void pause(Clock::time_point now);

  const Stream& stream_;
  std::vector<Entry> entries_;
  std::vector<Running> running_;
};

std::string_view name_of(OpObserver::Phase phase);

}  // namespace weft
