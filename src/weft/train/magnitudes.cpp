// set_magnitudes: squares that ranks add up.
#include "weft/train/magnitudes.h"

#include <algorithm>
#include <cmath>

#include "weft/parallel/data/near.h"
#include "weft/train/weights.h"

namespace weft {

void set_magnitudes(const Recipe& recipe, Trainer& trainer) {
  Context& context = trainer.context();
  if (context.stream.allocator().device() == Device::meta) return;
  constexpr std::string_view kMagnitude = ".lora_magnitude";
  const std::vector<Owned> weights = all_weights(trainer);
  Allocator memory;
  Decoder whole(recipe.model);  // its shapes only
  for (const Param* weight : whole.params()) {
    constexpr std::string_view kWeight = ".weight";
    if (!weight->name.ends_with(kWeight)) continue;
    const std::string magnitude =
        weight->name.substr(0, weight->name.size() - kWeight.size()) + std::string(kMagnitude);
    if (std::ranges::none_of(whole.params(), [&](const Param* p) { return p->name == magnitude; })) continue;
    const int64_t columns = weight->shape[1];
    const Tensor squares = memory.empty(DType::f64, {weight->shape[0]});
    double* const sums = squares.data<double>();
    std::fill_n(sums, squares.numel(), 0.0);
    visit_weight(context, weights, weight->name, false, [&](const Tensor& here, int64_t first, bool is_counted) {
      const float* const x = here.data<float>();
      for (int64_t i = 0; is_counted && i < here.numel(); ++i)
        sums[(first + i) / columns] += double(x[i]) * double(x[i]);
    });
    trainer.mesh().world().all_reduce(squares);
    visit_weight(context, weights, magnitude, true, [&](const Tensor& here, int64_t first, bool) {
      for (int64_t i = 0; i < here.numel(); ++i) here.data<float>()[i] = float(std::sqrt(sums[first + i]));
    });
  }
  trainer.weights_changed();
}

}  // namespace weft
