// Timeline: names, and spans without overlap.
#include "weft/plan/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace weft::plan {
namespace {

constexpr std::array<std::string_view, kNumSpanKinds> kKindNames = {
    "forward", "backward", "weight gradient", "recompute", "optimizer", "wait", "collective", "message", "other"};

}  // namespace

std::string_view name_of(SpanKind kind) { return kKindNames[size_t(kind)]; }

SpanKind kind_of(ActionKind action) {
  switch (action) {
    case ActionKind::forward: return SpanKind::forward;
    case ActionKind::backward:
    case ActionKind::backward_input: return SpanKind::backward;
    case ActionKind::backward_weight: return SpanKind::weight_gradient;
  }
  return SpanKind::other;
}

SpanKind kind_of(OpObserver::Phase phase, ActionKind inside) {
  switch (phase) {
    case OpObserver::Phase::forward: return inside == ActionKind::forward ? SpanKind::forward : SpanKind::recompute;
    case OpObserver::Phase::backward: return SpanKind::backward;
    case OpObserver::Phase::backward_weight: return SpanKind::weight_gradient;
  }
  return SpanKind::other;
}

std::string_view Timeline::intern(std::string_view text) {
  const auto found = texts->find(text);
  return found != texts->end() ? *found : *texts->emplace(text).first;
}

std::vector<Span> flattened(std::vector<Span> spans) {
  std::ranges::stable_sort(spans, [](const Span& a, const Span& b) {
    return a.begin_s != b.begin_s ? a.begin_s < b.begin_s : a.end_s > b.end_s;
  });
  std::vector<Span> flat, open;  // open: what has begun and not ended, innermost last
  double now = 0;
  const auto advance = [&](double until) {  // what is open is visible from now to `until`
    while (!open.empty() && now < until) {
      Span part = open.back();
      part.begin_s = now, part.end_s = std::min(part.end_s, until);
      if (part.end_s > part.begin_s) flat.push_back(part), now = part.end_s;
      if (open.back().end_s > until) break;
      open.pop_back();
    }
    now = until;
  };
  for (const Span& span : spans) {
    if (!(span.end_s > span.begin_s)) continue;
    advance(span.begin_s);
    while (!open.empty() && open.back().end_s <= now) open.pop_back();
    open.push_back(span);
  }
  advance(INFINITY);
  return flat;
}

Timeline last_step_of(const Timeline& timeline) {
  double begin = 0;
  int first_rank = INT32_MAX;
  for (const Span& s : timeline.spans)
    if (s.track == TraceTrack::pipeline && s.stage == 0) first_rank = std::min(first_rank, s.rank);
  for (const Span& s : timeline.spans)
    if (s.track == TraceTrack::pipeline && s.rank == first_rank && s.kind == SpanKind::forward && s.stage == 0 &&
        s.micro_batch == 0)
      begin = std::max(begin, s.begin_s);
  Timeline last = timeline;
  last.spans.clear(), last.seconds = 0;
  for (Span s : timeline.spans) {
    if (s.begin_s < begin) continue;
    s.begin_s -= begin, s.end_s -= begin;
    last.seconds = std::max(last.seconds, s.end_s);
    last.spans.push_back(s);
  }
  return last;
}

std::vector<std::vector<double>> seconds_by_kind(const Timeline& timeline) {
  std::vector<std::vector<Span>> of_rank(timeline.ranks.size());
  for (const Span& s : timeline.spans)
    if (s.track == TraceTrack::compute) of_rank[size_t(s.rank)].push_back(s);
  std::vector<std::vector<double>> all;
  for (std::vector<Span>& spans : of_rank) {
    std::vector<double>& seconds = all.emplace_back(size_t(kNumSpanKinds), 0.0);
    for (const Span& s : flattened(std::move(spans))) seconds[size_t(s.kind)] += s.end_s - s.begin_s;
  }
  return all;
}

}  // namespace weft::plan
