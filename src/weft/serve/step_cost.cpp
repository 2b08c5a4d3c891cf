// StepCost: a line of least squares, whose points fade.
#include "weft/serve/step_cost.h"

#include <algorithm>

namespace weft {

void StepCost::learn(int64_t rows, double seconds) {
  constexpr double kFade = 0.95;
  weight_ = kFade * weight_ + 1;
  const auto add = [&](double& mean, double value) { mean += (value - mean) / weight_; };
  const double r = double(rows);
  add(rows_, r), add(seconds_, seconds), add(rows_rows_, r * r), add(rows_seconds_, r * seconds);

  const double variance = rows_rows_ - rows_ * rows_;
  if (variance < rows_ * rows_ / 16) return;  // what was known before is better than a slope of noise
  const double each = (rows_seconds_ - rows_ * seconds_) / variance, fixed = seconds_ - each * rows_;
  constexpr double kMost = 1 << 20;
  good_rows_ = each > 0 ? int64_t(std::clamp(9 * fixed / each, 1.0, kMost)) : int64_t(kMost);
}

}  // namespace weft
