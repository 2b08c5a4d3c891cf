// The sections of a recipe that say what a run trains for: [preference], [distill] and [rl].
#pragma once
#include "weft/train/recipe.h"

namespace weft {

// Of a recipe whose mesh, data and [train] are read. Throws UsageError naming the key.
void read_preference(Toml& toml, Recipe& recipe);
void read_distill(Toml& toml, Recipe& recipe);
void read_policy(Toml& toml, Recipe& recipe);

}  // namespace weft
