// RoughPlanner: the time and memory of a layout from steps of a model of one and two layers, continued to all layers.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "weft/plan/step_plan.h"

namespace weft::plan {

struct Rough {
  double step_s = 0, peak_bytes = 0;
};

// What layers cost is the same whatever the pipeline, so layouts that differ in the rest share small traces.
class RoughPlanner {
 public:
  RoughPlanner(const Cluster& cluster, const Stack& stack, const std::optional<ModelConfig>& teacher = {})
      : cluster_(cluster), stack_(stack), teacher_(teacher) {}
  Rough estimate(const Recipe& recipe);

 private:
  struct Probe {
    double layer_s = 0, ends_s = 0;                      // of a micro-batch; embedding and head
    double fixed_layer_s = 0, fixed_ends_s = 0;          // of a step, whatever the number of micro-batches
    double state_layer = 0, state_ends = 0;              // bytes
    double activations_layer = 0, activations_ends = 0;  // of a micro-batch
  };
  const Probe& probe_of(const Recipe& recipe);
  Probe measure(const Recipe& recipe) const;

  Cluster cluster_;
  Stack stack_;
  std::optional<ModelConfig> teacher_;
  std::map<std::string, Probe> probes_;
};

}  // namespace weft::plan
