// charts: curves of scaling and bars of where the time goes, as SVG.
#pragma once
#include <span>
#include <string>

#include "weft/plan/scaling.h"

namespace weft::plan {

// Tokens a second and device, and the efficiency beside the smallest planned size, over the number of devices.
// same: with the same batch at every size; grown: with the batch growing with the devices. Either may be empty.
std::string draw_scaling(std::span<const ScalePoint> same, std::span<const ScalePoint> grown);

// What the step of each layout goes to, one bar a layout on one axis of time.
std::string draw_breakdown(std::span<const Candidate> layouts);

}  // namespace weft::plan
