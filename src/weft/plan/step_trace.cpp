// StepTrace: the names of its parts.
#include "weft/plan/step_trace.h"

#include <algorithm>

namespace weft::plan {
namespace {

constexpr std::array<std::string_view, kNumAxes> kAxisNames = {
    "world", "tp", "cp", "pp", "data", "shard", "replicate", "ep", "expert_shard", "expert_data", "ends", "none"};
constexpr std::array<std::string_view, kNumMemoryUses> kUseNames = {"weights", "gradients", "optimizer",
                                                                    "activations", "communication"};

}  // namespace

std::string_view name_of(Axis axis) { return kAxisNames[size_t(axis)]; }
std::string_view name_of(MemoryUse use) { return kUseNames[size_t(use)]; }

Axis axis_of(std::string_view label) {
  const auto found = std::ranges::find(kAxisNames, label);
  return found == kAxisNames.end() ? Axis::none : Axis(found - kAxisNames.begin());
}

}  // namespace weft::plan
