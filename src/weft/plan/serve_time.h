// ServeTime: how long a step of serving takes on described hardware, and what bounds it.
#pragma once
#include <span>

#include "weft/plan/cost_model.h"

namespace weft::plan {

// Seconds. The parts are of all stages, which work one after the other; they add up to the step.
struct ServeTime {
  double step_s = 0;
  double weights_s = 0;  // products that wait for their weights
  double cache_s = 0;    // attention that waits for keys and values
  double compute_s = 0;  // products and attention that wait for the cores
  double small_s = 0;    // other kernels
  double launch_s = 0;   // between kernels
  std::array<double, kNumAxes> links_s{};

  // The parts by name, those of links as "collectives of tp"; in a fixed order, with those that are 0.
  std::vector<std::pair<std::string, double>> parts() const;
  // "reading weights: 71% of the step".
  std::string bound() const;
};

// traces: of a step on the first rank of each stage.
ServeTime time_of(std::span<const StepTrace> traces, const CostModel& costs);
// a + b * times, of every part: prompts take many steps.
ServeTime add(const ServeTime& a, const ServeTime& b, double times = 1);

}  // namespace weft::plan
