// round_memory: what a model that learns from answers of its own takes while it makes them.
#pragma once
#include <vector>

#include "weft/train/recipe.h"

namespace weft::plan {

// Bytes of a rank of each stage, beside what training holds between two steps: the cache, what a step of the engine
// takes, and weights that are not the trainer's own, packed ones among them. At least what a run takes. The recipe
// has [rl], and its model is complete. packs_weights: as the CPU's products like them.
std::vector<int64_t> round_memory(const Recipe& recipe, bool packs_weights);

}  // namespace weft::plan
