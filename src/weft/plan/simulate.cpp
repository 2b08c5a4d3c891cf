// simulate: every rank goes on until it waits for a message that is not sent yet; in turn, until all are done.
#include "weft/plan/simulate.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "weft/base/error.h"

namespace weft::plan {
namespace {

class Player {
 public:
  Player(std::span<const StepTrace> traces, const CostModel& costs, bool has_spans)
      : traces_(traces), costs_(costs), has_spans_(has_spans), ranks_(traces.size()) {
    result_.ranks.resize(traces.size());
    result_.collective_s.resize(kNumAxes);
  }

  Simulation play() {
    bool is_done = false;
    while (!is_done) {
      bool has_moved = false;
      is_done = true;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        const size_t before = ranks_[r].next;
        advance(r);
        has_moved |= ranks_[r].next != before;
        is_done &= ranks_[r].next == traces_[r].events.size();
      }
      check(has_moved || is_done, "stages wait for each other for ever");
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].now += costs_.step_overhead_s(), result_.ranks[r].update_s += costs_.step_overhead_s();
      result_.step_s = std::max(result_.step_s, ranks_[r].now);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) result_.ranks[r].idle_s = result_.step_s - ranks_[r].now;
    return std::move(result_);
  }

 private:
  struct Stream {
    double free_at = 0;
    std::unordered_map<int64_t, double> ends;  // by sequence
    std::deque<double> sent;                   // when messages around a ring arrive
  };
  struct Rank {
    size_t next = 0;
    double now = 0;
    std::array<Stream, kNumAxes> streams;
    std::array<double, kNumAxes> busy{};
    bool is_in_action = false;
    double action_begun = 0;
    Action action;
  };

  // Messages of a pair of stages: where one goes, and what it says. Numbers fit by far.
  static uint64_t key_of(size_t from, size_t to, int tag) {
    return uint64_t(from) << 48 | uint64_t(to) << 32 | uint64_t(uint32_t(tag));
  }

  void advance(size_t index) {
    Rank& r = ranks_[index];
    TimeSplit& split = result_.ranks[index];
    const std::vector<Event>& events = traces_[index].events;
    for (; r.next < events.size(); ++r.next) {
      const Event& e = events[r.next];
      switch (e.kind) {
        case Event::Kind::matmul:
        case Event::Kind::attention:
        case Event::Kind::memory: kernel(r, split, e); break;
        case Event::Kind::collective: {
          if (e.axis == Axis::ends && !meet(index, r, e)) return;
          const double seconds = costs_.collective_s(e.op, e.bytes, e.axis);
          Stream& s = r.streams[size_t(e.axis)];
          const double end = std::max(r.now, s.free_at) + seconds;
          split.exposed_s[size_t(e.axis)] += end - r.now;
          note_collective(index, e, end - seconds, end);
          r.busy[size_t(e.axis)] += seconds;
          r.now = s.free_at = end;
          break;
        }
        case Event::Kind::start: {
          const double seconds = costs_.collective_s(e.op, e.bytes, e.axis);
          Stream& s = r.streams[size_t(e.axis)];
          const double begin = std::max(r.now, s.free_at);
          s.free_at = begin + seconds;
          s.ends[e.sequence] = s.free_at;
          r.busy[size_t(e.axis)] += seconds;
          note_collective(index, e, begin, s.free_at);
          break;
        }
        case Event::Kind::wait: {
          Stream& s = r.streams[size_t(e.axis)];
          const auto found = s.ends.find(e.sequence);
          if (found == s.ends.end()) break;  // started before the step
          if (found->second > r.now) {
            split.exposed_s[size_t(e.axis)] += found->second - r.now;
            r.now = found->second;
          }
          s.ends.erase(found);
          break;
        }
        case Event::Kind::send:
          if (e.axis == Axis::pp)
            arrivals_[key_of(index, size_t(e.peer), e.tag)] = r.now + costs_.message_s(e.bytes, e.axis);
          else
            send_around(index, r, e);
          break;
        case Event::Kind::recv: {
          if (e.axis != Axis::pp) {
            take_around(r, split, e);
            break;
          }
          const auto found = arrivals_.find(key_of(size_t(e.peer), index, e.tag));
          if (found == arrivals_.end()) return;
          if (found->second > r.now) {
            split.bubble_s += found->second - r.now;
            r.now = found->second;
          }
          arrivals_.erase(found);
          break;
        }
        case Event::Kind::action:
          r.is_in_action = true, r.action_begun = r.now;
          r.action = {e.action, e.peer, e.tag};
          break;
        case Event::Kind::end_action:
          r.is_in_action = false;
          if (has_spans_)
            result_.spans.push_back({.rank = int(index),
                                     .name = weft::name_of(r.action.kind),
                                     .begin_s = r.action_begun,
                                     .end_s = r.now,
                                     .stage = r.action.stage,
                                     .micro_batch = r.action.micro_batch});
          break;
      }
    }
    for (size_t axis = 0; axis < kNumAxes; ++axis)
      result_.collective_s[axis] = std::max(result_.collective_s[axis], r.busy[axis]);
  }

  void kernel(Rank& r, TimeSplit& split, const Event& e) {
    double seconds = costs_.kernel_s(e);
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      const double left = r.streams[axis].free_at - r.now;
      if (left > 0) seconds += std::min(left, seconds) * costs_.slowdown(Axis(axis));
    }
    seconds += costs_.launch_s();
    r.now += seconds;
    if (!r.is_in_action)
      split.update_s += seconds;
    else if (e.kind == Event::Kind::matmul)
      split.matmul_s += seconds;
    else if (e.kind == Event::Kind::attention)
      split.attention_s += seconds;
    else
      split.memory_s += seconds;
  }

  // Ranks of one stage do the same at the same time: what one sends to a neighbour, another sends to it.
  void send_around(size_t index, Rank& r, const Event& e) {
    Stream& s = r.streams[size_t(e.axis)];
    const double begin = std::max(r.now, s.free_at);
    s.free_at = begin + costs_.message_s(e.bytes, e.axis);
    s.sent.push_back(s.free_at);
    r.busy[size_t(e.axis)] += s.free_at - begin;
    note_collective(index, e, begin, s.free_at);
  }
  static void take_around(Rank& r, TimeSplit& split, const Event& e) {
    Stream& s = r.streams[size_t(e.axis)];
    if (s.sent.empty()) return;
    const double arrival = s.sent.front();
    s.sent.pop_front();
    if (arrival <= r.now) return;
    split.exposed_s[size_t(e.axis)] += arrival - r.now;
    r.now = arrival;
  }

  // The first and the last stage come together; whether the other one is there already.
  bool meet(size_t index, Rank& r, const Event& e) {
    const size_t other = index == 0 ? ranks_.size() - 1 : 0;
    if (other == index) return true;
    arrivals_.try_emplace(key_of(index, index, int(-e.sequence)), r.now);
    const auto found = arrivals_.find(key_of(other, other, int(-e.sequence)));
    if (found == arrivals_.end()) return false;
    if (found->second > r.now) {
      result_.ranks[index].bubble_s += found->second - r.now;
      r.now = found->second;
    }
    return true;
  }

  void note_collective(size_t index, const Event& e, double begin, double end) {
    if (has_spans_ && end > begin)
      result_.spans.push_back(
          {.rank = int(index), .is_comm = true, .name = weft::name_of(e.op), .begin_s = begin, .end_s = end});
  }

  std::span<const StepTrace> traces_;
  const CostModel& costs_;
  bool has_spans_;
  std::vector<Rank> ranks_;
  std::unordered_map<uint64_t, double> arrivals_;
  Simulation result_;
};

}  // namespace

Simulation simulate(std::span<const StepTrace> traces, const CostModel& costs, bool has_spans) {
  return Player(traces, costs, has_spans).play();
}

}  // namespace weft::plan
