// OpProfile: a stack of running ops, of which only the innermost counts.
#include "weft/train/op_profile.h"

namespace weft {

OpProfile::OpProfile(Stream& stream) : stream_(stream), timer_(make_timer(stream)) {
  entries_.reserve(128);
  running_.reserve(16);
  reset();
}

void OpProfile::reset() {
  entries_.clear(), on_device_.clear();
  if (timer_) timer_->start();
}

const std::vector<OpProfile::Entry>& OpProfile::entries() {
  if (!on_device_.empty()) {
    const std::vector<int64_t> times = timer_->stop();
    for (const OnDevice& d : on_device_)
      entries_[d.entry].seconds += double(times[size_t(d.end)] - times[size_t(d.begin)]) * 1e-9;
    on_device_.clear();
    timer_->start();
  }
  return entries_;
}

const OpProfile::Entry* OpProfile::find(std::string_view op, Phase phase) const {
  for (const Entry& e : entries_)
    if (e.op == op && e.phase == phase) return &e;
  return nullptr;
}

// Books what the innermost op has used since it last went on.
void OpProfile::pause(const Moment& now) {
  if (running_.empty()) return;
  Running& r = running_.back();
  Entry& e = entries_[r.entry];
  if (timer_)
    on_device_.push_back({r.entry, r.since.mark, now.mark});
  else
    e.seconds += std::chrono::duration<double>(now.host - r.since.host).count();
  e.cost.flops += stream_.cost.flops - r.cost.flops;
  e.cost.bytes += stream_.cost.bytes - r.cost.bytes;
}

void OpProfile::begin(std::string_view op, Phase phase) {
  const Moment begun = now();
  pause(begun);
  const Entry* known = find(op, phase);
  if (!known) {
    entries_.push_back({.op = op, .phase = phase, .cost = {}});
    known = &entries_.back();
  }
  running_.push_back({size_t(known - entries_.data()), {Clock::now(), begun.mark}, stream_.cost});
}

void OpProfile::end(std::string_view, Phase) {
  const Moment ended = now();
  pause(ended);
  ++entries_[running_.back().entry].calls;
  running_.pop_back();
  if (running_.empty()) return;
  running_.back().since = ended;
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
