// make_optimizer: kinds to classes.
#include "weft/train/make_optimizer.h"

#include "weft/optim/adamw8.h"

namespace weft {

std::unique_ptr<Optimizer> make_optimizer(Context& context, const OptimizerConfig& c, std::vector<Owned> owned) {
  switch (c.kind) {
    case OptimizerKind::adamw: return std::make_unique<AdamW>(context, std::move(owned), c.adamw);
    case OptimizerKind::adamw8bit: return std::make_unique<AdamW8>(context, std::move(owned), c.adamw);
    case OptimizerKind::adafactor: return std::make_unique<Adafactor>(context, std::move(owned), c.adafactor);
    case OptimizerKind::lion: return std::make_unique<Lion>(context, std::move(owned), c.lion);
    case OptimizerKind::sgd: return std::make_unique<Sgd>(context, std::move(owned), c.sgd);
    case OptimizerKind::muon: return std::make_unique<Muon>(context, std::move(owned), c.muon);
  }
  throw Error("an optimizer of kind {}", int(c.kind));
}

}  // namespace weft
