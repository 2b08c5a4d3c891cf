// launch: starts the ranks of a recipe's mesh, where they run, and trains.
#pragma once
#include "weft/train/run.h"

namespace weft {

// Those of one of `num_ranks` ranks: its share of the machine's; where the launcher has bound each rank to cores, all
// of those.
int threads_of_a_rank(int num_ranks);

// The recipe's data as token files, made where they are not yet there; shows its progress. start: the recipe's
// model_path, opened; null where it has none.
Dataset open_data(const Recipe& recipe, const ModelSource* start = nullptr);

// Prepares the data and runs every rank: as threads of this process, or, where a launcher such as mpirun started one
// process a rank, as this process's rank. The report is rank 0's. The recipe may lack the vocabulary.
RunReport train(Recipe recipe, RunOptions options);

}  // namespace weft
