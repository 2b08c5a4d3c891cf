// recipe_text: a planned recipe as the TOML that trains it.
#pragma once
#include "weft/train/recipe.h"

namespace weft::plan {

// A recipe of its own: the model by recipe.model_path or as its difference from its family, what was planned, and
// recipe.data.train. `title` becomes its first line, a comment. Throws UsageError when `weft train` would refuse it.
std::string recipe_text(const Recipe& recipe, std::string_view title);

// A user's recipe, as read from its file and not yet asked for keys, with the planned mesh, batches, precision and
// recomputation in place of its own; every other key stays as it is. Comments are lost. Throws UsageError when a key
// that stays contradicts the plan.
std::string recipe_text_over(const Toml& own, const Recipe& planned);

}  // namespace weft::plan
