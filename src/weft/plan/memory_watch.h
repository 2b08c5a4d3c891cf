// MemoryWatch: follows every block of a rank's memory and keeps what was held for which use when it held most.
#pragma once
#include <map>
#include <tuple>
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
  MemoryPeak peak() const { return described(peak_); }
  std::vector<MemoryPeak> peaks() const;  // of each kind

  void allocated(const Buffer& buffer) noexcept override;
  void released(const Buffer& buffer) noexcept override;
  void begin(std::string_view op, Phase phase) override;
  void end(std::string_view op, Phase phase) override;

 private:
  struct Op {
    std::string_view name;
    Phase phase;
  };
  using Kind = std::tuple<std::string_view, Phase, bool, ActionKind>;
  // When memory is taken: in an op, in an action, in both or in neither.
  struct Moment {
    Op op;
    Action action;
    bool has_action = false;
    std::string describe(bool with_micro_batch) const;
    Kind kind() const { return {op.name, op.phase, has_action, has_action ? action.kind : ActionKind()}; }
  };
  struct Peak {
    Moment moment;
    MemorySplit split;
    int64_t bytes = 0, event = 0;
  };
  Moment now() const { return {ops_.empty() ? Op{} : ops_.back(), action_, has_action_}; }
  MemoryPeak described(const Peak& peak) const;
  MemoryUse use_of_now() const;
  void sample();

  Allocator& allocator_;
  RecordedStream& stream_;
  MemorySplit live_;
  Peak peak_;
  std::map<Kind, Peak> peaks_;
  std::vector<MemorySample>* samples_;
  std::unordered_map<const Buffer*, MemoryUse> uses_;
  std::vector<Op> ops_;
  Action action_;
  bool has_action_ = false;
  int64_t live_bytes_;
};

}  // namespace weft::plan
