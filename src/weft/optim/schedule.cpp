// LrSchedule: the curves.
#include "weft/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {

double LrSchedule::at(int64_t step) const {
  if (step < warmup) return lr * double(step + 1) / double(warmup);
  const auto progress = [&](int64_t begin) {  // 0 at `begin`, 1 at the last step
    return std::clamp(double(step - begin) / double(std::max<int64_t>(steps - 1 - begin, 1)), 0.0, 1.0);
  };
  switch (decay) {
    case Decay::constant: return lr;
    case Decay::linear: return lr + (min_lr - lr) * progress(warmup);
    case Decay::cosine: return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress(warmup)));
    case Decay::wsd: {
      const int64_t begin = std::max(warmup, steps - decay_steps);
      return step < begin ? lr : lr + (min_lr - lr) * progress(begin);
    }
  }
  return lr;
}

}  // namespace weft
