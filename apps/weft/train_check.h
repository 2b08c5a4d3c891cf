// train_check: what the planner says of a recipe that is to be trained here, before anything is allocated.
#pragma once
#include "command.h"
#include "weft/train/recipe.h"

namespace weft::app {

// Throws Error with the shortage and the remedy when the ranks of this machine together need more memory than is
// free. The recipe's model must be complete.
void check_memory(const Recipe& recipe);

// `--mesh auto`: the recipe with the ranks of this machine, the batches and the recomputation with which a step takes
// least time; says what it chose. own: the recipe as read from its file and not yet asked for keys; recipe: the same,
// read. Throws UsageError beside mpirun, which has fixed the ranks.
Recipe choose_mesh(const Toml& own, const Recipe& recipe, const Output& output);

}  // namespace weft::app
