// place_layers: which layers of a model each stage of a pipeline holds.
#pragma once
#include <span>
#include <string_view>
#include <vector>

namespace weft {

struct LayerRange {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

// Durations in any one unit; the embedding is on the first stage, the head on the last.
struct LayerCosts {
  double layer = 1, embedding = 0, head = 0;
};

// Contiguous ranges, one for each stage, whose slowest stage is as fast as can be; of equally fast placements the
// most even one, and of these that whose earlier stages have fewer layers, since they hold more micro-batches at a
// time. Of layers that are alike, a stage between the first and the last is empty only if there are more than
// num_layers + 2 stages. layers: what each costs.
std::vector<LayerRange> place_layers(std::span<const double> layers, int num_stages, double embedding, double head);
std::vector<LayerRange> place_layers(int num_layers, int num_stages, const LayerCosts& costs = {});

// What a user wrote: "6,6,5,5" is the number of layers of each stage. Throws UsageError naming mesh.layers_per_stage.
std::vector<LayerRange> parse_layers_per_stage(std::string_view text, int num_layers, int num_stages);

}  // namespace weft
