// start_from: piece by piece, from the runs that the whole parameters have in common with them.
#include "weft/train/start_from.h"

#include <algorithm>

#include "weft/parallel/data/near.h"
#include "weft/train/magnitudes.h"
#include "weft/train/weights.h"

namespace weft {

void start_from(const ModelSource& source, const Recipe& recipe, Trainer& trainer) {
  const auto load = [&](std::span<const Owned> owned, const std::string& param) {
    const auto read = [&](int64_t first, std::span<float> out) { source.read(param, first, out); };
    if (is_held_as_nf4(owned, param)) return write_nf4(trainer.context(), owned, param, read);
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
  const auto is_magnitude = [](const ParamNames& names) { return names.param.ends_with(".lora_magnitude"); };
  if (recipe.model.lora.is_dora && std::ranges::none_of(source.names(), is_magnitude))
    set_magnitudes(recipe, trainer);
}

}  // namespace weft
