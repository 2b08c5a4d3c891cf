// Tracer: what each rank did when, recorded without allocating and written as a Chrome/Perfetto trace.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/file.h"

namespace weft {

// A line of a rank's part of the picture. Spans of one track must nest or follow each other.
enum class TraceTrack : uint8_t {
  compute,  // of a rank on a device: when the device computed
  communication,
  pipeline,
  host,  // of a rank on a device: when its host queued the same, and when it waited; empty on the CPU
};
inline constexpr int kNumTraceTracks = 4;
std::string_view name_of(TraceTrack track);

// Names, keys and texts are kept as they are: literals, or what Tracer::intern returned.
struct TraceArg {
  std::string_view key;
  double number = 0;
  std::string_view text = {};  // instead of the number, unless empty
};

struct TraceEvent {
  std::string_view name;
  TraceTrack track = TraceTrack::compute;
  uint8_t num_args = 0;
  int64_t begin_ns = 0, end_ns = 0;  // of Tracer::now_ns()
  std::array<TraceArg, 4> args{};

  void add(TraceArg arg) {
    if (num_args < args.size()) args[num_args++] = arg;
  }
};

// The events of one rank. Any of its threads may record at any time; start, stop and reading need that none does.
class Tracer {
 public:
  // Measures from its making to its destruction. Nothing happens while the tracer is stopped.
  class Span {
   public:
    Span(Tracer* tracer, std::string_view name, TraceTrack track) : tracer_(tracer) {
      if (tracer_ != nullptr) event_ = {.name = name, .track = track, .begin_ns = now_ns()};
    }
    ~Span() { end(); }
    Span(Span&& other) noexcept : tracer_(std::exchange(other.tracer_, nullptr)), event_(other.event_) {}
    Span& operator=(Span&&) = delete;

    Span& arg(std::string_view key, double number) {
      if (tracer_ != nullptr) event_.add({key, number});
      return *this;
    }
    Span& arg(std::string_view key, std::string_view text) {
      if (tracer_ != nullptr) event_.add({key, 0, text});
      return *this;
    }
    void end() {
      if (tracer_ == nullptr) return;
      event_.end_ns = now_ns();
      std::exchange(tracer_, nullptr)->record(event_);
    }

   private:
    Tracer* tracer_;
    TraceEvent event_;
  };

  // Room for `capacity` events is taken by start(); what comes later is counted but not kept.
  explicit Tracer(int rank, int64_t capacity = 1 << 16) : rank_(rank), capacity_(capacity) {}

  int rank() const { return rank_; }
  bool is_recording() const { return is_recording_.load(std::memory_order_relaxed); }
  void start();
  void stop() { is_recording_.store(false, std::memory_order_relaxed); }

  [[nodiscard]] Span span(std::string_view name, TraceTrack track = TraceTrack::compute) {
    return Span(is_recording() ? this : nullptr, name, track);
  }
  // For what has its own times, such as a collective that ended on another thread.
  void record(const TraceEvent& event);

  // A copy of a name that is not a literal, which lives as long as the tracer.
  std::string_view intern(std::string name);

  int64_t num_events() const;
  int64_t num_dropped() const;

  // This rank's events as JSON objects between commas, times in microseconds since `origin_ns`.
  std::string to_json(int64_t origin_ns) const;
  // When the first event began; INT64_MAX when there is none.
  int64_t first_ns() const;

  static int64_t now_ns();  // the machine's monotonic clock: the same for all its processes

 private:
  int rank_;
  int64_t capacity_;
  std::atomic<bool> is_recording_{false};
  std::atomic<int64_t> next_{0};
  std::vector<TraceEvent> events_;
  std::mutex names_mutex_;
  std::set<std::string> names_;
};

// Writes trace.json from the ranks' Tracer::to_json, which may have come from other processes.
void write_trace(FileSystem& fs, const std::string& path, std::span<const std::string> ranks);

}  // namespace weft
