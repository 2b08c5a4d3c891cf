// make_optimizer: the optimizer that a recipe names.
#pragma once
#include <memory>

#include "weft/optim/optimizer.h"
#include "weft/train/recipe.h"

namespace weft {

std::unique_ptr<Optimizer> make_optimizer(Context& context, const OptimizerConfig& config, std::vector<Owned> owned);

}  // namespace weft
