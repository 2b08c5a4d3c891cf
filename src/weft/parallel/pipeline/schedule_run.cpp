// ScheduleRun: every rank goes on until it waits for another; when all wait, that is a deadlock.
#include "weft/parallel/pipeline/schedule_run.h"

#include <algorithm>

namespace weft {
namespace {

bool is_input_half(ActionKind kind) { return kind == ActionKind::backward || kind == ActionKind::backward_input; }

// One rank's place in its list.
struct Place {
  size_t next = 0;  // action
  enum class Part : uint8_t { receive, compute, send } part = Part::receive;
  double time = 0;
};

class Paper {
 public:
  Paper(const Schedule& schedule, const ActionCosts& costs, SendMode mode)
      : schedule_(schedule),
        costs_(costs),
        mode_(mode),
        places_(size_t(schedule.num_ranks())),
        arrivals_(size_t(2 * schedule.num_stages() * schedule.shape().num_micro_batches), -1) {
    run_.ranks.resize(places_.size());
  }

  ScheduleRun run() {
    for (bool any = true; any;) {
      any = false;
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank)
        while (advance(rank)) any = true;
    }
    run_.deadlock = describe_deadlock();
    return std::move(run_);
  }

 private:
  bool is_at_end(int rank) const { return places_[size_t(rank)].next == schedule_.actions(rank).size(); }
  const Action& action(int rank) const { return schedule_.actions(rank)[places_[size_t(rank)].next]; }

  // When the message that `taker` waits for arrives; negative: not yet sent.
  double& arrival(const Action& taker) {
    const bool is_gradient = is_input_half(taker.kind);
    const int message = (taker.stage * 2 + is_gradient) * schedule_.shape().num_micro_batches + taker.micro_batch;
    return arrivals_[size_t(message)];
  }

  bool advance(int rank) {
    if (is_at_end(rank)) return false;
    Place& place = places_[size_t(rank)];
    switch (place.part) {
      case Place::Part::receive: return receive(rank, place);
      case Place::Part::compute: return compute(rank, place);
      case Place::Part::send: return send(rank, place);
    }
    return false;
  }

  bool receive(int rank, Place& place) {
    if (const auto message = message_before(schedule_, action(rank))) {
      const double when = arrival(message->taken_by);
      if (when < 0) return false;
      place.time = std::max(place.time, when);
    }
    place.part = Place::Part::compute;
    return true;
  }

  bool compute(int rank, Place& place) {
    const double begin = place.time;
    place.time += costs_.of(action(rank).kind);
    run_.ranks[size_t(rank)].push_back({action(rank), begin, place.time});
    place.part = Place::Part::send;
    return true;
  }

  bool send(int rank, Place& place) {
    if (const auto message = message_after(schedule_, action(rank))) {
      if (mode_ == SendMode::rendezvous && !is_waiting_for(message->to, *message)) return false;
      arrival(message->taken_by) = place.time + costs_.send;
    }
    place.part = Place::Part::receive;
    ++place.next;
    return true;
  }

  bool is_waiting_for(int rank, const Message& message) const {
    if (is_at_end(rank) || places_[size_t(rank)].part != Place::Part::receive) return false;
    const auto expected = message_before(schedule_, action(rank));
    return expected && expected->from == message.from && same_message(expected->taken_by, message.taken_by);
  }

  static bool same_message(const Action& a, const Action& b) {
    return a.stage == b.stage && a.micro_batch == b.micro_batch && is_input_half(a.kind) == is_input_half(b.kind);
  }

  std::string describe_deadlock() const {
    std::string text;
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      if (is_at_end(rank)) continue;
      const Action& now = action(rank);
      if (!text.empty()) text += "; ";
      if (places_[size_t(rank)].part == Place::Part::receive) {
        const Message message = *message_before(schedule_, now);
        text += fmt::format("rank {} waits before {} for {} from rank {}", rank, describe(now), describe(message),
                            message.from);
      } else {
        const Message message = *message_after(schedule_, now);
        text += fmt::format("rank {} waits after {} for rank {} to take {}", rank, describe(now), message.to,
                            describe(message));
      }
    }
    return text;
  }

  const Schedule& schedule_;
  const ActionCosts& costs_;
  SendMode mode_;
  std::vector<Place> places_;
  std::vector<double> arrivals_;
  ScheduleRun run_;
};

}  // namespace

std::optional<Message> message_before(const Schedule& schedule, const Action& action) {
  const bool is_gradient = is_input_half(action.kind);
  if (!is_gradient && action.kind != ActionKind::forward) return std::nullopt;
  const int sender = action.stage + (is_gradient ? 1 : -1);
  if (sender < 0 || sender >= schedule.num_stages()) return std::nullopt;
  const int from = schedule.rank_of(sender), to = schedule.rank_of(action.stage);
  if (from == to) return std::nullopt;
  return Message{from, to, {action.kind, sender, action.micro_batch}, action};
}

std::optional<Message> message_after(const Schedule& schedule, const Action& action) {
  const bool is_gradient = is_input_half(action.kind);
  if (!is_gradient && action.kind != ActionKind::forward) return std::nullopt;
  const int taker = action.stage + (is_gradient ? -1 : 1);
  if (taker < 0 || taker >= schedule.num_stages()) return std::nullopt;
  const int from = schedule.rank_of(action.stage), to = schedule.rank_of(taker);
  if (from == to) return std::nullopt;
  return Message{from, to, action, {action.kind, taker, action.micro_batch}};
}

std::string describe(const Message& message) {
  return fmt::format("the {} for stage {} micro-batch {}",
                     is_input_half(message.taken_by.kind) ? "gradient" : "activation", message.taken_by.stage,
                     message.taken_by.micro_batch);
}

ScheduleRun run_on_paper(const Schedule& schedule, const ActionCosts& costs, SendMode mode) {
  return Paper(schedule, costs, mode).run();
}

}  // namespace weft
