// simulate: every rank goes on until it waits for a message that is not sent yet; in turn, until all are done. Where
// ranks share cores, the one that is furthest behind goes on, so that it is known who else runs.
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
    if (has_spans_) result_.event_s.resize(traces.size());
  }

  Simulation play() {
    if (costs_.is_shared())
      play_in_order_of_time();
    else
      play_in_turn();
    for (size_t r = 0; r < ranks_.size(); ++r) {
      end_work(r);
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
    double idle_until = 0;    // since it last ran
    bool is_blocked = false;  // by a message that is not sent yet
    std::array<Stream, kNumAxes> streams;
    std::array<double, kNumAxes> busy{};
    bool is_in_action = false;
    double action_begun = 0;
    Action action;
    Span work{.begin_s = 0, .end_s = -1};  // kernels of one kind that follow each other, not yet among the spans
  };

  bool is_done(size_t r) const { return ranks_[r].next == traces_[r].events.size(); }

  void play_in_turn() {
    bool are_done = false;
    while (!are_done) {
      bool has_moved = false;
      are_done = true;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        has_moved |= advance(r, traces_[r].events.size());
        are_done &= is_done(r);
      }
      check(has_moved || are_done, "stages wait for each other for ever");
    }
  }

  void play_in_order_of_time() {
    for (;;) {
      size_t first = ranks_.size();
      bool are_done = true;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        are_done &= is_done(r);
        if (!ranks_[r].is_blocked && !is_done(r) && (first == ranks_.size() || goes_before(r, first))) first = r;
      }
      if (are_done) return;
      check(first < ranks_.size(), "stages wait for each other for ever");
      if (advance(first, 1))
        for (Rank& r : ranks_) r.is_blocked = false;
      else
        ranks_[first].is_blocked = true;
    }
  }

  // Of two at the same time one that may have to wait: the other's kernel then has its cores.
  bool goes_before(size_t a, size_t b) const {
    const auto order = [&](size_t r) {
      return std::pair{ranks_[r].now, traces_[r].events[ranks_[r].next].kind != Event::Kind::recv};
    };
    return order(a) < order(b);
  }

  // Stages of which a rank runs at that time.
  int num_running(double now) const {
    int count = 0;
    for (size_t r = 0; r < ranks_.size(); ++r)
      count += !ranks_[r].is_blocked && !is_done(r) && now >= ranks_[r].idle_until;
    return count;
  }

  // Messages of a pair of stages: where one goes, and what it says. Numbers fit by far.
  static uint64_t key_of(size_t from, size_t to, int tag) {
    return uint64_t(from) << 48 | uint64_t(to) << 32 | uint64_t(uint32_t(tag));
  }

  // So many events at most, up to one that has to wait; whether it moved.
  bool advance(size_t index, size_t most) {
    const size_t before = ranks_[index].next;
    play_events(index, most);
    return ranks_[index].next != before;
  }

  void play_events(size_t index, size_t most) {
    Rank& r = ranks_[index];
    TimeSplit& split = result_.ranks[index];
    const std::vector<Event>& events = traces_[index].events;
    const size_t last = r.next + std::min(most, events.size() - r.next);
    for (; r.next < last; ++r.next) {
      const Event& e = events[r.next];
      // A rank that had to wait comes here again; what it waits for begins when it came first.
      if (has_spans_ && result_.event_s[index].size() == r.next) result_.event_s[index].push_back(r.now);
      switch (e.kind) {
        case Event::Kind::matmul:
        case Event::Kind::attention:
        case Event::Kind::memory: kernel(index, r, split, e); break;
        case Event::Kind::collective: {
          if (e.axis == Axis::ends && !meet(index, r, e)) return;
          const double seconds = costs_.exposed_s(e);
          Stream& s = r.streams[size_t(e.axis)];
          const double end = std::max(r.now, s.free_at) + seconds;
          split.exposed_s[size_t(e.axis)] += end - r.now;
          note_wait(index, e, end);
          note_collective(index, e, end - seconds, end);
          r.busy[size_t(e.axis)] += seconds;
          r.now = s.free_at = end;
          break;
        }
        case Event::Kind::start: {
          const double seconds = costs_.collective_s(e);
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
            note_wait(index, e, found->second);
            r.now = found->second;
          }
          s.ends.erase(found);
          break;
        }
        case Event::Kind::send:
          if (e.axis == Axis::pp) {
            const double arrival = r.now + costs_.message_s(e.bytes, e.axis);
            arrivals_[key_of(index, size_t(e.peer), e.tag)] = arrival;
            note_collective(index, e, r.now, arrival);
          } else {
            send_around(index, r, e);
          }
          break;
        case Event::Kind::recv: {
          if (e.axis != Axis::pp) {
            take_around(index, r, split, e);
            break;
          }
          const auto found = arrivals_.find(key_of(size_t(e.peer), index, e.tag));
          if (found == arrivals_.end()) return;
          if (found->second > r.now) {
            split.bubble_s += found->second - r.now;
            r.now = r.idle_until = found->second;
          }
          arrivals_.erase(found);
          break;
        }
        case Event::Kind::action:
          r.is_in_action = true, r.action_begun = r.now;
          r.action = {e.action, e.peer, e.tag};
          break;
        case Event::Kind::end_action:
          end_work(index);
          r.is_in_action = false;
          if (has_spans_)
            result_.spans.push_back({.rank = int(index),
                                     .track = TraceTrack::pipeline,
                                     .kind = kind_of(r.action.kind),
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

  void kernel(size_t index, Rank& r, TimeSplit& split, const Event& e) {
    double seconds = costs_.kernel_s(e);
    if (costs_.is_shared()) seconds /= costs_.relief(num_running(r.now));
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      const double left = r.streams[axis].free_at - r.now;
      if (left > 0) seconds += std::min(left, seconds) * costs_.slowdown(Axis(axis));
    }
    seconds += costs_.launches_s(e);
    note_kernel(index, r, e, r.now + seconds);
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
  void take_around(size_t index, Rank& r, TimeSplit& split, const Event& e) {
    Stream& s = r.streams[size_t(e.axis)];
    if (s.sent.empty()) return;
    const double arrival = s.sent.front();
    s.sent.pop_front();
    if (arrival <= r.now) return;
    split.exposed_s[size_t(e.axis)] += arrival - r.now;
    note_wait(index, e, arrival);
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
      r.now = r.idle_until = found->second;
    }
    return true;
  }

  // Kernels of one kind without a pause between them make one span.
  void note_kernel(size_t index, Rank& r, const Event& e, double end) {
    if (!has_spans_) return;
    SpanKind kind = r.is_in_action ? kind_of(e.phase, r.action.kind) : SpanKind::optimizer;
    if (e.name == "pack_matmul_b") kind = SpanKind::other;  // of no pass
    Span& w = r.work;
    const bool goes_on = w.end_s == r.now && w.kind == kind;
    if (!goes_on) {
      end_work(index);
      w = {.rank = int(index), .kind = kind, .name = name_of(kind), .begin_s = r.now};
      if (r.is_in_action) w.stage = r.action.stage, w.micro_batch = r.action.micro_batch;
    }
    w.end_s = end;
  }
  void end_work(size_t index) {
    Span& w = ranks_[index].work;
    if (has_spans_ && w.end_s > w.begin_s) result_.spans.push_back(w);
    w.end_s = -1;
  }
  void note_wait(size_t index, const Event& e, double end) {
    const double now = ranks_[index].now;
    if (has_spans_ && end > now)
      result_.spans.push_back({.rank = int(index),
                               .kind = SpanKind::wait,
                               .name = "wait",
                               .group = name_of(e.axis),
                               .begin_s = now,
                               .end_s = end});
  }
  void note_collective(size_t index, const Event& e, double begin, double end) {
    if (has_spans_ && end > begin)
      result_.spans.push_back({.rank = int(index),
                               .track = TraceTrack::communication,
                               .kind = e.op == CommOp::send ? SpanKind::message : SpanKind::collective,
                               .name = weft::name_of(e.op),
                               .group = name_of(e.axis),
                               .begin_s = begin,
                               .end_s = end,
                               .bytes = e.bytes});
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
