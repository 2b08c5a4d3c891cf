// start_from: piece by piece, from the runs that the whole parameters have in common with them.
#include "weft/train/start_from.h"

#include "weft/parallel/data/near.h"
#include "weft/train/weights.h"

namespace weft {

void start_from(const ModelSource& source, Trainer& trainer) {
  const auto load = [&](std::span<const Owned> owned, const std::string& param) {
    visit_weight(trainer.context(), owned, param, true, [&](const Tensor& here, int64_t first, bool) {
      source.read(param, first, {here.data<float>(), size_t(here.numel())});
    });
  };
  const std::vector<Owned> weights = all_weights(trainer), biases = trainer.router_biases();
  {
    const NearInTurn in_turn(weights);
    for (const ParamNames& names : source.names()) load(weights, names.param), load(biases, names.param);
  }
  trainer.weights_changed();
}

}  // namespace weft
