// Families of which most layers remember in a state of fixed size, and few or none attend: Granite 4, Nemotron-H,
// LFM2, Kimi Linear.
#pragma once
#include <vector>

#include "weft/models/family.h"

namespace weft {

const std::vector<Family>& hybrid_families();

}  // namespace weft
