// OpProfile: a stack of running ops, of which only the innermost counts.
#include "weft/train/op_profile.h"

namespace weft {

const OpProfile::Entry* OpProfile::find(std::string_view op, Phase phase) const {
  for (const Entry& e : entries_)
    if (e.op == op && e.phase == phase) return &e;
  return nullptr;
}

// Books what the innermost op has used since it last went on.
void OpProfile::pause(Clock::time_point now) {
  if (running_.empty()) return;
  Running& r = running_.back();
  Entry& e = entries_[r.entry];
  e.seconds += std::chrono::duration<double>(now - r.since).count();
  e.cost.flops += stream_.cost.flops - r.cost.flops;
  e.cost.bytes += stream_.cost.bytes - r.cost.bytes;
}

void OpProfile::begin(std::string_view op, Phase phase) {
  const auto now = Clock::now();
  pause(now);
  const Entry* known = find(op, phase);
  if (!known) {
    entries_.push_back({.op = op, .phase = phase, .cost = {}});
    known = &entries_.back();
  }
  running_.push_back({size_t(known - entries_.data()), Clock::now(), stream_.cost});
}

void OpProfile::end(std::string_view, Phase) {
  const auto now = Clock::now();
  pause(now);
  ++entries_[running_.back().entry].calls;
  running_.pop_back();
  if (running_.empty()) return;
  running_.back().since = now;
  running_.back().cost = stream_.cost;
}

std::string_view name_of(OpObserver::Phase phase) {
  switch (phase) {
    case OpObserver::Phase::forward: return "forward";
    case OpObserver::Phase::backward: return "backward";
    case OpObserver::Phase::backward_weight: return "weight";
  }
  return "?";
}

}  // namespace weft
