// MemoryWatch: a use for every block.
#include "weft/plan/memory_watch.h"

#include <fmt/format.h>

#include "weft/train/op_profile.h"

namespace weft::plan {

MemoryWatch::MemoryWatch(Allocator& allocator, RecordedStream& stream, const MemorySplit& state,
                         std::vector<MemorySample>* samples)
    : allocator_(allocator),
      stream_(stream),
      live_(state),
      peak_(state),
      samples_(samples),
      live_bytes_(state.total()) {
  peak_bytes_ = live_bytes_;
  sample();
  allocator_.set_observer(this);
}

void MemoryWatch::set_action(const Action* action) {
  has_action_ = action;
  if (action) action_ = *action;
}

void MemoryWatch::begin(std::string_view op, Phase phase) {
  ops_.push_back({op, phase});
  stream_.set_phase(phase);
}

void MemoryWatch::end(std::string_view, Phase) {
  ops_.pop_back();
  stream_.set_phase(ops_.empty() ? Phase::forward : ops_.back().phase);
}

// One for each event: the most that was held there.
void MemoryWatch::sample() {
  if (!samples_) return;
  const int64_t event = stream_.num_events();
  if (!samples_->empty() && samples_->back().event == event) {
    if (samples_->back().split.total() < live_bytes_) samples_->back().split = live_;
  } else if (samples_->empty() || samples_->back().split.bytes != live_.bytes) {
    samples_->push_back({event, live_});
  }
}

// Gathered weights and buckets of gradients are made by the brackets around a group of parameters, or after the last
// op of a step.
MemoryUse MemoryWatch::use_of_now() const {
  if (!has_action_) return MemoryUse::communication;
  if (ops_.empty()) return MemoryUse::activations;
  return ops_.back().name.starts_with("data_") ? MemoryUse::communication : MemoryUse::activations;
}

void MemoryWatch::allocated(const Buffer& buffer) noexcept {
  const MemoryUse use = use_of_now();
  uses_[&buffer] = use;
  live_[use] += int64_t(buffer.bytes);
  live_bytes_ += int64_t(buffer.bytes);
  sample();
  if (live_bytes_ <= peak_bytes_) return;
  peak_bytes_ = live_bytes_, peak_ = live_;
  peak_op_ = ops_.empty() ? Op{} : ops_.back();
  peak_action_ = action_, peak_has_action_ = has_action_;
  peak_event_ = stream_.num_events();
}

// What was there before the watch is state: such a block that is taken again comes back as something else.
void MemoryWatch::released(const Buffer& buffer) noexcept {
  const auto found = uses_.find(&buffer);
  const MemoryUse use = found == uses_.end() ? MemoryUse::weights : found->second;
  live_[use] -= int64_t(buffer.bytes);
  live_bytes_ -= int64_t(buffer.bytes);
  sample();
}

MemoryPeak MemoryWatch::peak() const {
  std::string where;
  if (peak_op_.name == "optimizer")
    where = "the optimizer's update";
  else if (!peak_op_.name.empty())
    where = fmt::format("{} of {}", weft::name_of(peak_op_.phase), peak_op_.name);
  if (peak_has_action_)
    where += fmt::format("{}{}", where.empty() ? "" : " in ", describe(peak_action_));
  else if (where.empty())
    where = peak_event_ > 0 ? "the end of the step" : "all of the step";
  return {peak_, where, peak_event_};
}

}  // namespace weft::plan
