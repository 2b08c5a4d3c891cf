// write_trace: a timeline in Chrome's and Perfetto's format, as `weft train` writes a measured one.
#pragma once
#include <string>

#include "weft/plan/timeline.h"

namespace weft::plan {

std::string trace_json(const Timeline& timeline);

}  // namespace weft::plan
