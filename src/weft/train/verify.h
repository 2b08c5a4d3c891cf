// verify: proves a mesh equal to one rank: the loss, every gradient and the updated weights.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/data/batch_source.h"
#include "weft/train/objectives.h"
#include "weft/train/recipe.h"

namespace weft {

// What some steps of training leave behind, put together from all ranks.
struct TrainedRun {
  std::vector<double> losses, grad_norms;              // by step
  std::vector<std::string> names;                      // of the parameters
  std::vector<std::vector<float>> gradients, weights;  // after the last step; no gradients of what is frozen
  std::vector<int64_t> peak_bytes;                     // by rank
  std::map<std::string, int64_t> sent_bytes;           // by group of ranks: the most that one rank sent in a step
};

// Adds names, gradients and weights of every parameter, put together from all ranks, on rank 0. Collective.
void add_tensors(const Recipe& recipe, Trainer& trainer, TrainedRun& run);

// What a recipe's own batches and objective are made of, as ObjectiveSources has them; all of it outlives them.
struct VerifySources {
  const Dataset& data;
  const ModelSource *start = nullptr, *teacher = nullptr;
  MakeAnswerer make_answerer = {};
  MakeReward make_reward = {};
  RoutingReplay* routing = nullptr;  // of models with experts
};

// Collective over `world`, which is the recipe's mesh. The result is complete on rank 0. With batches alone the next
// token is learned.
TrainedRun train_some(const Recipe& recipe, const BatchSource& batches, Communicator& world, int steps, int threads);
TrainedRun train_some(const Recipe& recipe, const VerifySources& sources, Communicator& world, int steps,
                      int threads);

// Adam divides by the size of a gradient, so where that is all but zero, rounding errors become whole steps. A run to
// be compared takes an epsilon of at least ten times the root mean square of the gradients (make_continuous), and a
// constant learning rate. In fp16 its loss is scaled so that no step is left out: one that overflows says nothing.
void make_comparable(Recipe& recipe, const BatchSource& batches);
void make_comparable(Recipe& recipe, const VerifySources& sources);

struct Difference {
  double loss = 0, gradient = 0, weight = 0;  // the largest relative ones, over all steps
  std::string gradient_name, weight_name;     // of which parameter
  bool is_within(double tolerance) const { return loss <= tolerance && gradient <= tolerance && weight <= tolerance; }
};

// A tensor's difference is that of its worst element, relative to its largest element, or to a thousandth of the
// largest of all tensors where that is more: a gradient that is zero but for rounding differs by all of itself.
// least_loss: to which losses are relative that are smaller.
Difference difference(const TrainedRun& got, const TrainedRun& one_rank, double least_loss = 1e-30);

// The least part of a layer's choices of experts that a mesh makes as one rank does, where the other ones are near
// ties: so much may rounding change.
double least_same_experts(Precision precision);

// What a precision allows: 1e-5 for fp32, 2e-2 for bf16 and fp16, 0.2 for fp8.
double tolerance_of(Precision precision);
double tolerance_of(const Recipe& recipe);  // wider where its model or optimizer enlarges what rounds

}  // namespace weft
