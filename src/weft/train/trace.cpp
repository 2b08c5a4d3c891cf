// Tracer: the slots for events, and the JSON they become.
#include "weft/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft {
namespace {

std::string in_quotes(std::string_view text) { return to_json_text(nlohmann::json(std::string(text))); }

void append_meta(std::string& out, std::string_view what, int rank, int track, std::string_view key,
                 std::string_view value) {
  fmt::format_to(std::back_inserter(out), R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"{}":"{}"}}}})", what,
                 rank, track, key, value);
}

void append_event(std::string& out, const TraceEvent& event, int rank, int64_t origin_ns) {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, R"(,{}{{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})", '\n',
                 in_quotes(event.name), name_of(event.track), rank, int(event.track),
                 double(event.begin_ns - origin_ns) * 1e-3, double(event.end_ns - event.begin_ns) * 1e-3);
  if (event.num_args > 0) {
    out += ",\"args\":{";
    for (size_t i = 0; i < event.num_args; ++i) {
      const TraceArg& arg = event.args[i];
      fmt::format_to(to, "{}{}:", i == 0 ? "" : ",", in_quotes(arg.key));
      if (!arg.text.empty()) {
        out += in_quotes(arg.text);
      } else if (std::isfinite(arg.number)) {
        fmt::format_to(to, "{}", arg.number);
      } else {
        out += "null";
      }
    }
    out += '}';
  }
  out += '}';
}

}  // namespace

std::string_view name_of(TraceTrack track) {
  constexpr std::array<std::string_view, kNumTraceTracks> kNames = {"compute", "communication", "pipeline", "host"};
  return kNames[size_t(track)];
}

void Tracer::start() {
  events_.resize(size_t(capacity_));
  is_recording_.store(true, std::memory_order_relaxed);
}

void Tracer::record(const TraceEvent& event) {
  if (!is_recording()) return;
  const int64_t slot = next_.fetch_add(1, std::memory_order_relaxed);
  if (slot < capacity_) events_[size_t(slot)] = event;
}

std::string_view Tracer::intern(std::string name) {
  const std::lock_guard lock(names_mutex_);
  return *names_.insert(std::move(name)).first;
}

int64_t Tracer::num_events() const { return std::min(next_.load(std::memory_order_relaxed), capacity_); }
int64_t Tracer::num_dropped() const { return next_.load(std::memory_order_relaxed) - num_events(); }

int64_t Tracer::now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

int64_t Tracer::first_ns() const {
  int64_t first = INT64_MAX;
  for (int64_t i = 0; i < num_events(); ++i) first = std::min(first, events_[size_t(i)].begin_ns);
  return first;
}

std::string Tracer::to_json(int64_t origin_ns) const {
  std::string out;
  append_meta(out, "process_name", rank_, 0, "name", fmt::format("rank {}", rank_));
  const std::span events(events_.data(), size_t(num_events()));
  const bool has_host = std::ranges::find(events, TraceTrack::host, &TraceEvent::track) != events.end();
  for (int track = 0; track < kNumTraceTracks; ++track) {
    if (TraceTrack(track) == TraceTrack::host && !has_host) continue;
    out += ",\n";
    append_meta(out, "thread_name", rank_, track, "name", name_of(TraceTrack(track)));
  }
  for (const TraceEvent& event : events) append_event(out, event, rank_, origin_ns);
  if (num_dropped() > 0) {
    out += ",\n";
    append_meta(out, "process_labels", rank_, 0, "labels", fmt::format("{} more events did not fit", num_dropped()));
  }
  return out;
}

void write_trace(FileSystem& fs, const std::string& path, std::span<const std::string> ranks) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t i = 0; i < ranks.size(); ++i) out.append(i == 0 ? "" : ",\n").append(ranks[i]);
  out += "\n]}\n";
  write_file_atomically(fs, path, out);
}

}  // namespace weft
