// round_options, replica_shape: which ranks answer together, and in what cache.
#pragma once
#include "weft/serve/continuous_engine.h"
#include "weft/train/recipe.h"

namespace weft {

// Of those who hold one model together: the ranks of its stages and of its tensors, and of its experts. Those along
// cp, who have it whole, answer apart.
MeshShape replica_shape(const MeshShape& all);
int num_replicas(const MeshShape& all);
// Of a round, the most that a replica is asked for.
int64_t answers_of_replica(const Recipe& recipe);

// Of a replica that is asked for so many answers; the longest prompt and its answer have `longest` tokens.
ContinuousOptions round_options(const PolicyConfig& config, int64_t answers, int64_t longest);

// The most that a recipe's rounds ask for.
ContinuousOptions round_options(const Recipe& recipe);

}  // namespace weft
