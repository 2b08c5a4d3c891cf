// read_trace: a SAX reader that keeps one event at a time.
#include "weft/plan/read_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/file.h"
#include "weft/train/op_profile.h"
#include "weft/train/trace_ops.h"

namespace weft::plan {
namespace {

using Phase = OpObserver::Phase;

// Also the interface that nlohmann::json::sax_parse calls.
class TraceReader {
 public:
  TraceReader(const std::string& source, const TraceLimits& limits) : source_(source), limits_(limits) {}

  Timeline finish() {
    if (!has_events_) refuse("there is no \"traceEvents\"");
    if (timeline_.spans.empty()) refuse("it has no complete events (\"ph\": \"X\")");
    name_ranks();
    find_recomputation();
    double first = INFINITY;
    for (const Span& s : timeline_.spans) first = std::min(first, s.begin_s);
    for (Span& s : timeline_.spans) {
      s.begin_s -= first, s.end_s -= first;
      timeline_.seconds = std::max(timeline_.seconds, s.end_s);
    }
    if (!(timeline_.seconds > 0)) refuse("its events take no time");
    timeline_.name = source_;
    return std::move(timeline_);
  }

  bool start_object(size_t) {
    if (is_in_list()) event_ = {}, is_event_ = true;
    return open();
  }
  bool end_object() {
    --depth_;
    if (is_event_ && is_in_list()) add(), is_event_ = false;
    return true;
  }
  bool start_array(size_t) {
    const bool is_list = !has_events_ && (depth_ == 0 || (depth_ == 1 && key_ == "traceEvents"));
    open();
    if (is_list) has_events_ = true, list_depth_ = depth_;
    return true;
  }
  bool end_array() {
    if (depth_ == list_depth_) list_depth_ = -1;
    --depth_;
    return true;
  }
  bool key(std::string& name) {
    key_ = name;
    if (is_event_ && depth_ == list_depth_ + 1) is_args_ = name == "args";
    return true;
  }
  bool string(std::string& text) {
    if (!is_event_) return true;
    constexpr size_t kMostBytes = 256;
    std::string_view cut = text;
    if (cut.size() > kMostBytes) cut = cut.substr(0, kMostBytes);
    if (depth_ == list_depth_ + 1) {
      if (key_ == "ph") event_.ph = cut;
      if (key_ == "name") event_.name = cut;
      if (key_ == "cat") event_.category = cut;
    } else if (depth_ == list_depth_ + 2 && is_args_) {
      if (key_ == "name") event_.arg_name = cut;
      if (key_ == "labels") event_.labels = cut;
      if (key_ == "phase") event_.phase = cut;
      if (key_ == "group") event_.group = cut;
    }
    return true;
  }
  bool number_integer(nlohmann::json::number_integer_t value) { return number(double(value)); }
  bool number_unsigned(nlohmann::json::number_unsigned_t value) { return number(double(value)); }
  bool number_float(nlohmann::json::number_float_t value, const std::string&) { return number(value); }
  bool boolean(bool) { return true; }
  bool null() { return true; }
  bool binary(nlohmann::json::binary_t&) { return true; }
  bool parse_error(size_t at, const std::string&, const nlohmann::json::exception&) {
    refuse(fmt::format("it is not JSON at byte {}", at));
  }

 private:
  struct Event {
    std::string ph, name, category, phase, group, arg_name, labels;
    double pid = 0, tid = 0, ts = NAN, dur = NAN, stage = -1, micro_batch = -1, bytes = 0;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error("{} is not a trace that can be drawn: {}", source_, why);
  }
  bool is_in_list() const { return depth_ == list_depth_; }
  bool open() {
    if (++depth_ > limits_.max_depth) refuse(fmt::format("more than {} lists inside each other", limits_.max_depth));
    return true;
  }

  bool number(double value) {
    if (!is_event_) return true;
    if (depth_ == list_depth_ + 1) {
      if (key_ == "pid") event_.pid = value;
      if (key_ == "tid") event_.tid = value;
      if (key_ == "ts") event_.ts = value;
      if (key_ == "dur") event_.dur = value;
    } else if (depth_ == list_depth_ + 2 && is_args_) {
      if (key_ == "stage") event_.stage = value;
      if (key_ == "micro_batch") event_.micro_batch = value;
      if (key_ == "bytes") event_.bytes = value;
    }
    return true;
  }

  int rank_of(double pid) {
    if (!(std::abs(pid) < 1e15) || pid != std::floor(pid)) refuse(fmt::format("a process is called {}", pid));
    const auto [found, is_new] = ranks_.try_emplace(int64_t(pid), int(ranks_.size()));
    if (is_new && int(ranks_.size()) > limits_.max_ranks)
      refuse(fmt::format("more than {} ranks", limits_.max_ranks));
    return found->second;
  }

  void add() {
    if (++num_events_ > limits_.max_events) refuse(fmt::format("more than {} events", limits_.max_events));
    const Event& e = event_;
    if (e.ph == "M") {
      if (e.name == "process_name" && !e.arg_name.empty()) names_[rank_of(e.pid)] = e.arg_name;
      if (e.name == "process_labels" && !e.labels.empty()) timeline_.note += e.labels + "; ";
    }
    if (e.ph != "X") return;
    constexpr double kMost = 1e15;  // microseconds: 30 years
    const auto is_time = [](double t) { return t >= 0 && t < kMost; };
    if (!is_time(e.ts) || !is_time(e.dur))
      refuse(fmt::format("event {} (\"{}\") has no time that is a number from 0 to 1e15 microseconds", num_events_,
                         e.name));
    Span s{.rank = rank_of(e.pid), .begin_s = e.ts * 1e-6, .end_s = (e.ts + e.dur) * 1e-6};
    s.name = timeline_.intern(e.name), s.group = timeline_.intern(e.group);
    s.bytes = e.bytes;
    const auto small = [](double v) { return v >= 0 && v < 1e9 ? int(v) : -1; };
    s.stage = small(e.stage), s.micro_batch = small(e.micro_batch);
    s.track = track_of(e);
    s.kind = kind_of_event(e, s.track);
    timeline_.spans.push_back(s);
  }

  static TraceTrack track_of(const Event& e) {
    for (int track = 0; track < kNumTraceTracks; ++track)
      if (e.category == weft::name_of(TraceTrack(track))) return TraceTrack(track);
    return e.tid > 0 && e.tid < kNumTraceTracks ? TraceTrack(int(e.tid)) : TraceTrack::compute;
  }

  static SpanKind kind_of_event(const Event& e, TraceTrack track) {
    if (track == TraceTrack::communication)
      return e.name == weft::name_of(CommOp::send) || e.name == weft::name_of(CommOp::recv) ? SpanKind::message
                                                                                            : SpanKind::collective;
    if (track == TraceTrack::pipeline) {
      for (const ActionKind kind :
           {ActionKind::forward, ActionKind::backward, ActionKind::backward_input, ActionKind::backward_weight})
        if (e.name == weft::name_of(kind)) return kind_of(kind);
      return SpanKind::other;
    }
    if (e.name == TraceOps::kWaitName) return SpanKind::wait;
    if (e.name == "optimizer") return SpanKind::optimizer;
    if (e.name == "pack_weight") return SpanKind::other;  // of no pass
    for (const Phase phase : {Phase::forward, Phase::backward, Phase::backward_weight})
      if (e.phase == weft::name_of(phase)) return kind_of(phase, ActionKind::forward);
    for (int kind = 0; kind < kNumSpanKinds; ++kind)  // of a plan
      if (e.name == name_of(SpanKind(kind))) return SpanKind(kind);
    return SpanKind::other;
  }

  // By process, so that rank 10 comes after rank 9.
  void name_ranks() {
    std::vector<int> place(ranks_.size());
    timeline_.ranks.clear();
    for (const auto& [pid, index] : ranks_) {
      place[size_t(index)] = int(timeline_.ranks.size());
      const auto named = names_.find(index);
      timeline_.ranks.push_back(named != names_.end() ? named->second : fmt::format("rank {}", pid));
    }
    for (Span& s : timeline_.spans) s.rank = place[size_t(s.rank)];
  }

  // A forward pass inside a backward action was done before.
  void find_recomputation() {
    std::vector<std::vector<const Span*>> backward(timeline_.ranks.size());
    for (const Span& s : timeline_.spans)
      if (s.track == TraceTrack::pipeline && s.kind != SpanKind::forward) backward[size_t(s.rank)].push_back(&s);
    for (auto& spans : backward) std::ranges::sort(spans, {}, &Span::begin_s);
    for (Span& s : timeline_.spans) {
      if (s.track != TraceTrack::compute || s.kind != SpanKind::forward) continue;
      const auto& of_rank = backward[size_t(s.rank)];
      const auto after = std::ranges::upper_bound(of_rank, s.begin_s, {}, &Span::begin_s);
      if (after != of_rank.begin() && (*std::prev(after))->end_s >= s.end_s) s.kind = SpanKind::recompute;
    }
  }

  const std::string& source_;
  TraceLimits limits_;
  Timeline timeline_;
  std::map<int64_t, int> ranks_;      // by process
  std::map<int, std::string> names_;  // by rank
  std::string key_;
  Event event_;
  int64_t num_events_ = 0;
  int depth_ = 0, list_depth_ = -1;
  bool has_events_ = false, is_event_ = false, is_args_ = false;
};

}  // namespace

Timeline read_trace(std::string_view json, const std::string& source, const TraceLimits& limits) {
  if (json.size() > limits.max_bytes)
    throw Error("{} is not a trace that can be drawn: it has {} bytes, more than {}", source, json.size(),
                limits.max_bytes);
  TraceReader reader(source, limits);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  return reader.finish();
}

Timeline load_trace(const std::string& path, const TraceLimits& limits) {
  return read_trace(read_file(path, limits.max_bytes), path, limits);
}

}  // namespace weft::plan
