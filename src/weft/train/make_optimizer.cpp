// make_optimizer: names to classes.
#include "weft/train/make_optimizer.h"

#include "weft/optim/adamw.h"

namespace weft {

std::unique_ptr<Optimizer> make_optimizer(Context& context, const OptimizerConfig& config, std::vector<Owned> owned) {
  return std::make_unique<AdamW>(context, std::move(owned), config.adamw);
}

}  // namespace weft
