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
      peak_{.split = state, .bytes = state.total()},
      samples_(samples),
      live_bytes_(state.total()) {
  peaks_.emplace(peak_.moment.kind(), peak_);
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
  const Peak here{now(), live_, live_bytes_, stream_.num_events()};
  if (const auto [of_kind, is_first] = peaks_.try_emplace(here.moment.kind(), here);
      !is_first && here.bytes > of_kind->second.bytes)
    of_kind->second = here;
  if (here.bytes > peak_.bytes) peak_ = here;
}

// What was there before the watch is state: such a block that is taken again comes back as something else.
void MemoryWatch::released(const Buffer& buffer) noexcept {
  const auto found = uses_.find(&buffer);
  const MemoryUse use = found == uses_.end() ? MemoryUse::weights : found->second;
  live_[use] -= int64_t(buffer.bytes);
  live_bytes_ -= int64_t(buffer.bytes);
  sample();
}

std::string MemoryWatch::Moment::describe(bool with_micro_batch) const {
  std::string where;
  if (op.name == "optimizer")
    where = "the optimizer's update";
  else if (!op.name.empty())
    where = fmt::format("{} of {}", weft::name_of(op.phase), op.name);
  if (has_action)
    where += fmt::format("{}{}", where.empty() ? "" : " in ",
                         with_micro_batch ? weft::describe(action) : std::string(weft::name_of(action.kind)));
  return where;
}

MemoryPeak MemoryWatch::described(const Peak& peak) const {
  std::string where = peak.moment.describe(true);
  if (where.empty()) where = peak.event > 0 ? "the end of the step" : "all of the step";
  return {peak.split, where, peak.event, peak.moment.describe(false)};
}

std::vector<MemoryPeak> MemoryWatch::peaks() const {
  std::vector<MemoryPeak> all;
  for (const auto& [kind, peak] : peaks_) all.push_back(described(peak));
  return all;
}

}  // namespace weft::plan
