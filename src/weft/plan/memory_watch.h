// MemoryWatch: follows every block of a rank's memory and keeps what was held for which use when it held most.
#pragma once
#include <unordered_map>

#include "weft/autograd/context.h"
#include "weft/plan/recorded_kernels.h"

namespace weft::plan {

// Sees the ops too, to tell what a block that is taken now is for. A kernel table packs no memory of its own.
class MemoryWatch final : public AllocationObserver, public OpObserver {
 public:
  // `state`: what is live now, of which nothing will be released for good. samples: what is held over time; may be
  // null.
  MemoryWatch(Allocator& allocator, RecordedStream& stream, const MemorySplit& state,
              std::vector<MemorySample>* samples = nullptr);
  ~MemoryWatch() override { allocator_.set_observer(nullptr); }

  void set_action(const Action* action);  // null: between actions
  MemoryPeak peak() const;

  void allocated(const Buffer& buffer) noexcept override;
  void released(const Buffer& buffer) noexcept override;
  void begin(std::string_view op, Phase phase) override;
  void end(std::string_view op, Phase phase) override;

 private:
  struct Op {
    std::string_view name;
    Phase phase;
  };
  MemoryUse use_of_now() const;
  void sample();

  Allocator& allocator_;
  RecordedStream& stream_;
  MemorySplit live_, peak_;
  std::vector<MemorySample>* samples_;
  std::unordered_map<const Buffer*, MemoryUse> uses_;
  std::vector<Op> ops_;
  Op peak_op_;
  Action action_, peak_action_;
  bool has_action_ = false, peak_has_action_ = false;
  int64_t live_bytes_, peak_bytes_, peak_event_ = 0;
};

}  // namespace weft::plan
