// check_schedule: whether a schedule is complete and ends, how long it takes and what it holds; no device needed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/parallel/pipeline/schedule.h"

namespace weft {

// Durations in any one unit, of one stage and one micro-batch. Nobody computes less because a message is under way.
struct ActionCosts {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double send = 0;  // until the receiver has it

  double of(ActionKind kind) const;
  double all() const { return forward + backward_input + backward_weight; }
};

struct RankReport {
  // In activations of one stage for one micro-batch: the most that are held at a time from the forward to the end of
  // both backward halves, and of these the most whose input half is still to come (they are the large ones: a weight
  // half needs only the inputs of layers and the gradients of their outputs).
  int64_t peak_in_flight = 0;
  int64_t peak_before_backward = 0;
  double busy = 0, first_begin = 0, last_end = 0;
};

struct ScheduleReport {
  // What is wrong, naming ranks and actions; empty when every stage runs every micro-batch once, in order, and all
  // ranks come to the end with sends that are buffered. Each stage's messages come in the order in which they are
  // taken, so a tag for each (stage, direction) is enough.
  std::vector<std::string> problems;
  // Who waits for whom when a send returns only once the receiver takes it, each rank doing one thing at a time:
  // receive, compute, send. Empty when the schedule survives even that.
  std::string rendezvous_deadlock;
  // The first two messages of a pair of ranks that are taken in another order than they are sent in, which needs tags
  // or stored messages. Empty when a first-in-first-out channel for each pair and direction is enough.
  std::string reordered;

  // Of a run in which each action begins as soon as its rank is free and its messages are there; zero when there are
  // problems.
  std::vector<RankReport> ranks;
  double makespan = 0;
  double bubble = 0;  // idle share of all ranks' time, 0 .. 1
  // The longest that a rank idles between its own first and last action: what counts when steps follow each other
  // without a barrier between them.
  double inner_idle = 0;

  bool is_sound() const { return problems.empty(); }
};

ScheduleReport check_schedule(const Schedule& schedule, const ActionCosts& costs = {});

// The most that a rank which runs these holds at a time, where a micro-batch of one stage costs it `activation` from
// its forward to the end of its input half, and `weight_half` from there to the end of its weight half.
double peak_held(std::span<const Action> actions, double activation, double weight_half);

struct TimedAction {
  Action action;
  double begin, end;
};
// For each rank its actions with their times in that run; the schedule must be sound.
std::vector<std::vector<TimedAction>> simulate(const Schedule& schedule, const ActionCosts& costs);

}  // namespace weft
