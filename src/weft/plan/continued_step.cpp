// ContinuedStep: how many micro-batches show what one more takes.
#include "weft/plan/continued_step.h"

#include <algorithm>

namespace weft::plan {

ContinuedStep::ContinuedStep(const Recipe& recipe) : later(recipe.train.accumulation) {
  const int64_t all = recipe.train.accumulation, round = std::max<int64_t>(recipe.mesh.shape.pp, 2);
  const int64_t few = 2 * round + all % round;  // full pipelines, and as many left over as in the whole step
  if (all <= few + round) return;
  earlier = few, later = few + round;
  rounds = double(all - later) / double(round);
}

void ContinuedStep::go_on(StepTrace& later_one, const StepTrace& earlier_one) const {
  const ContinuedStep& all = *this;
  later_one.state_bytes = all(later_one.state_bytes, earlier_one.state_bytes);
  later_one.host_bytes = all(later_one.host_bytes, earlier_one.host_bytes);
  for (MemoryPeak& peak : later_one.peaks) {
    const auto before = std::ranges::find(earlier_one.peaks, peak.kind, &MemoryPeak::kind);
    if (before == earlier_one.peaks.end()) continue;
    for (size_t i = 0; i < peak.split.bytes.size(); ++i)
      peak.split.bytes[i] = all(peak.split.bytes[i], before->split.bytes[i]);
  }
  const auto total = [](const MemoryPeak& peak) { return peak.split.total(); };
  const MemoryPeak& most = *std::ranges::max_element(later_one.peaks, {}, total);
  const auto same = std::ranges::find(later_one.peaks, later_one.peak.kind, &MemoryPeak::kind);
  later_one.peak = total(*same) == total(most) ? *same : most;
}

Recipe with_accumulation(Recipe recipe, int64_t accumulation) {
  recipe.train.accumulation = accumulation;
  recipe.train.global_batch = recipe.train.micro_batch * recipe.mesh.shape.dp() * accumulation;
  return recipe;
}

}  // namespace weft::plan
