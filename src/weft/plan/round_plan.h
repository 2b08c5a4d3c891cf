// plan_round: what a model that learns from answers of its own takes while it makes them: memory and time.
#pragma once
#include <vector>

#include "weft/plan/cost_model.h"
#include "weft/train/recipe.h"

namespace weft::plan {

// Bytes of a rank of each stage, beside what training holds between two steps: the cache, what a step of the engine
// takes, and weights that are not the trainer's own, packed ones among them. At least what a run takes. The recipe
// has [rl], and its model is complete. packs_weights: as the CPU's products like them.
std::vector<int64_t> round_memory(const Recipe& recipe, bool packs_weights);

struct RoundPlan {
  std::vector<int64_t> bytes;  // round_memory
  double seconds = 0;          // of a round
  double tokens_per_s = 0;     // of answers, on all ranks
};

// As long as a round may take: prompts and answers fill a row's length. Each replica reads each of its prompts once,
// and then answers as many at a time as rl.running says; of steps in between there are as many as answers end one
// after the other. Scoring, and gathering weights where that is needed, are not in it.
RoundPlan plan_round(const Recipe& recipe, const CostModel& costs);

}  // namespace weft::plan
