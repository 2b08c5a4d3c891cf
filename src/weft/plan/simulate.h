// simulate: plays the traces of a step on described hardware, one rank of each stage of the pipeline.
#pragma once
#include <span>

#include "weft/plan/cost_model.h"
#include "weft/plan/timeline.h"

namespace weft::plan {

// Of one rank; they add up to the step.
struct TimeSplit {
  double matmul_s = 0, attention_s = 0, memory_s = 0;  // kernels, with their launches
  double update_s = 0;                                 // kernels after the last micro-batch
  std::array<double, kNumAxes> exposed_s{};            // waiting for collectives, by group
  double bubble_s = 0;                                 // waiting for other stages
  double idle_s = 0;                                   // at the end, for the slowest stage
  double exposed_total() const {
    double sum = 0;
    for (const double s : exposed_s) sum += s;
    return sum;
  }
  double compute() const { return matmul_s + attention_s + memory_s; }
};

struct Simulation {
  double step_s = 0;
  std::vector<TimeSplit> ranks;        // of the pipeline
  std::vector<double> collective_s{};  // by axis, of the slowest rank, hidden or not
  // When asked for:
  std::vector<Span> spans;                   // in no order
  std::vector<std::vector<double>> event_s;  // of each rank: when each of its events began
};

// traces: of every stage's rank, in order. Ranks of one stage do the same at the same time, so that one of them
// stands for all. Streams are as weft has them: kernels in order on one, started collectives in order on one for each
// group beside it, messages buffered. Throws Error when ranks wait for each other for ever.
Simulation simulate(std::span<const StepTrace> traces, const CostModel& costs, bool has_spans = false);

}  // namespace weft::plan
