// check_schedule: each rank's list by itself, then the messages between ranks, then the run on paper.
#include "weft/parallel/pipeline/check_schedule.h"

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/parallel/pipeline/schedule_run.h"

namespace weft {
namespace {

constexpr int kNever = -1;

// Where in its rank's list a stage does a micro-batch.
struct Places {
  int forward = kNever, input = kNever, weight = kNever;
  bool is_whole = false;  // one action for both halves
};

class ListChecker {
 public:
  ListChecker(const Schedule& schedule, std::vector<std::string>& problems)
      : schedule_(schedule),
        problems_(problems),
        places_(size_t(schedule.num_stages() * schedule.shape().num_micro_batches)) {}

  void run() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) note_places(rank);
    if (!problems_.empty()) return;
    for (int s = 0; s < schedule_.num_stages(); ++s)
      for (int m = 0; m < schedule_.shape().num_micro_batches; ++m) check_presence(s, m);
    if (!problems_.empty()) return;
    for (int s = 0; s < schedule_.num_stages(); ++s)
      for (int m = 0; m < schedule_.shape().num_micro_batches; ++m) check_order(s, m);
  }

 private:
  Places& places(int stage, int micro_batch) {
    return places_[size_t(stage * schedule_.shape().num_micro_batches + micro_batch)];
  }

  void note_places(int rank) {
    for (size_t i = 0; i < schedule_.actions(rank).size(); ++i) {
      const Action& action = schedule_.actions(rank)[i];
      if (action.stage < 0 || action.stage >= schedule_.num_stages() || action.micro_batch < 0 ||
          action.micro_batch >= schedule_.shape().num_micro_batches) {
        add("rank {}: {} does not exist; there are {} stages and {} micro-batches", rank, describe(action),
            schedule_.num_stages(), schedule_.shape().num_micro_batches);
        continue;
      }
      if (schedule_.rank_of(action.stage) != rank) {
        add("rank {}: {} belongs to rank {}", rank, describe(action), schedule_.rank_of(action.stage));
        continue;
      }
      note(rank, action, int(i));
    }
  }

  void note(int rank, const Action& action, int place) {
    Places& seen = places(action.stage, action.micro_batch);
    bool is_again = false;
    const auto set = [&](int& slot) {
      is_again |= slot != kNever;
      slot = place;
    };
    switch (action.kind) {
      case ActionKind::forward: set(seen.forward); break;
      case ActionKind::backward: seen.is_whole = true, set(seen.input), set(seen.weight); break;
      case ActionKind::backward_input: set(seen.input); break;
      case ActionKind::backward_weight: set(seen.weight); break;
    }
    if (is_again) add("rank {}: {} repeats what an earlier action has done", rank, describe(action));
  }

  void check_presence(int stage, int micro_batch) {
    const Places& seen = places(stage, micro_batch);
    const auto need = [&](int place, ActionKind kind) {
      if (place == kNever)
        add("rank {}: {} is missing", schedule_.rank_of(stage), describe(Action{kind, stage, micro_batch}));
    };
    need(seen.forward, ActionKind::forward);
    need(seen.input, ActionKind::backward_input);
    need(seen.weight, ActionKind::backward_weight);
  }

  void check_order(int stage, int micro_batch) {
    const Places& own = places(stage, micro_batch);
    const ActionKind input = own.is_whole ? ActionKind::backward : ActionKind::backward_input;
    const int rank = schedule_.rank_of(stage);
    const auto expect = [&](int before, int after) {
      if (before < after) return;
      add("rank {}: {} comes before {}", rank, describe(schedule_.actions(rank)[size_t(after)]),
          describe(schedule_.actions(rank)[size_t(before)]));
    };
    expect(own.forward, own.input);
    if (input != ActionKind::backward) expect(own.input, own.weight);
    if (stage + 1 == schedule_.num_stages() || schedule_.rank_of(stage + 1) != rank) return;
    expect(own.forward, places(stage + 1, micro_batch).forward);
    expect(places(stage + 1, micro_batch).input, own.input);
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  const Schedule& schedule_;
  std::vector<std::string>& problems_;
  std::vector<Places> places_;
};

// Sender and receiver, and the stage and direction or -1 for all of a pair.
using Channel = std::array<int, 4>;

// The first message of each channel that is not the next one its receiver takes from it.
std::vector<std::string> find_reordered(const Schedule& schedule, bool by_stage) {
  std::map<Channel, std::vector<Message>> sent, taken;
  const auto channel = [&](const Message& m) {
    return by_stage ? Channel{m.from, m.to, m.taken_by.stage, m.taken_by.kind == ActionKind::forward}
                    : Channel{m.from, m.to, -1, -1};
  };
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    for (const Action& action : schedule.actions(rank)) {
      if (const auto m = message_before(schedule, action)) taken[channel(*m)].push_back(*m);
      if (const auto m = message_after(schedule, action)) sent[channel(*m)].push_back(*m);
    }
  std::vector<std::string> found;
  for (const auto& [key, messages] : sent) {
    const std::vector<Message>& expected = taken[key];
    for (size_t i = 0; i < std::min(messages.size(), expected.size()); ++i) {
      const std::string a = describe(messages[i]), b = describe(expected[i]);
      if (a == b) continue;
      found.push_back(fmt::format("rank {} sends {} when rank {} waits for {}", key[0], a, key[1], b));
      break;
    }
  }
  return found;
}

RankReport measure(std::span<const Action> list, std::span<const TimedAction> actions) {
  RankReport rank;
  rank.peak_in_flight = int64_t(peak_held(list, 1, 1));
  rank.peak_before_backward = int64_t(peak_held(list, 1, 0));
  for (const TimedAction& timed : actions) rank.busy += timed.end - timed.begin;
  if (!actions.empty()) rank.first_begin = actions.front().begin, rank.last_end = actions.back().end;
  return rank;
}

}  // namespace

double ActionCosts::of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::forward: return forward;
    case ActionKind::backward: return backward_input + backward_weight;
    case ActionKind::backward_input: return backward_input;
    case ActionKind::backward_weight: return backward_weight;
  }
  return 0;
}

double peak_held(std::span<const Action> actions, double activation, double weight_half) {
  double held = 0, peak = 0;
  for (const Action& action : actions) {
    switch (action.kind) {
      case ActionKind::forward: held += activation; break;
      case ActionKind::backward: held -= activation; break;
      case ActionKind::backward_input: held += weight_half - activation; break;
      case ActionKind::backward_weight: held -= weight_half; break;
    }
    peak = std::max(peak, held);
  }
  return peak;
}

std::vector<std::vector<TimedAction>> simulate(const Schedule& schedule, const ActionCosts& costs) {
  ScheduleRun run = run_on_paper(schedule, costs, SendMode::buffered);
  check(run.deadlock.empty(), "the schedule does not end: {}", run.deadlock);
  return std::move(run.ranks);
}

ScheduleReport check_schedule(const Schedule& schedule, const ActionCosts& costs) {
  ScheduleReport report;
  ListChecker(schedule, report.problems).run();
  if (!report.is_sound()) return report;
  report.problems = find_reordered(schedule, true);
  const ScheduleRun run = run_on_paper(schedule, costs, SendMode::buffered);
  if (!run.deadlock.empty()) report.problems.push_back("deadlock: " + run.deadlock);
  report.rendezvous_deadlock = run_on_paper(schedule, costs, SendMode::rendezvous).deadlock;
  if (const auto reordered = find_reordered(schedule, false); !reordered.empty())
    report.reordered = reordered.front();
  if (!report.is_sound()) return report;

  double busy = 0;
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    const RankReport rank = measure(schedule.actions(r), run.ranks[size_t(r)]);
    busy += rank.busy;
    report.makespan = std::max(report.makespan, rank.last_end);
    report.inner_idle = std::max(report.inner_idle, rank.last_end - rank.first_begin - rank.busy);
    report.ranks.push_back(rank);
  }
  if (report.makespan > 0) report.bubble = 1 - busy / (report.makespan * schedule.num_ranks());
  return report;
}

}  // namespace weft
