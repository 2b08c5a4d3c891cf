// RoughPlanner: the time and memory of a layout from steps of models of one and two layers, of each kind of layer
// that the model has, continued to all layers.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/plan/step_plan.h"

namespace weft::plan {

struct Rough {
  double step_s = 0, peak_bytes = 0;
};
struct Impossible {
  std::string why;  // heads that do not divide
};

// What layers cost is the same whatever the pipeline, so layouts that differ in the rest share small traces. Layers
// of several kinds count as so many of the mean one.
class RoughPlanner {
 public:
  RoughPlanner(const Cluster& cluster, const Stack& stack, const std::optional<ModelConfig>& teacher = {})
      : cluster_(cluster), stack_(stack), teacher_(teacher) {}
  // One for each recipe. The small steps are traced on every core of the machine.
  std::vector<std::variant<Rough, Impossible>> estimate(std::span<const Recipe> recipes) const;

 private:
  struct Probe {
    double layer_s = 0, ends_s = 0;                      // of a micro-batch; embedding and head
    double fixed_layer_s = 0, fixed_ends_s = 0;          // of a step, whatever the number of micro-batches
    double state_layer = 0, state_ends = 0;              // bytes
    double activations_layer = 0, activations_ends = 0;  // of a micro-batch
  };
  using Probed = std::variant<Probe, Impossible>;
  static std::string key_of(const Recipe& recipe);  // of the layouts that share a probe
  Probe measure(const Recipe& recipe) const;
  Probe measure_alike(const Recipe& recipe) const;  // of a model whose layers are alike
  static Rough continued(const Probe& probe, const Recipe& recipe);

  Cluster cluster_;
  Stack stack_;
  std::optional<ModelConfig> teacher_;
};

}  // namespace weft::plan
