// read_trace: a measured trace.json as a timeline.
#pragma once
#include <string>
#include <string_view>

#include "weft/plan/timeline.h"

namespace weft::plan {

struct TraceLimits {
  uint64_t max_bytes = uint64_t(1) << 30;
  int64_t max_events = 8 << 20;
  int max_depth = 16;
  int max_ranks = 1 << 14;
};

// Chrome's and Perfetto's format, as `weft train` and `weft plan --timeline` write it: the complete events ("ph":
// "X"), a process for each rank. Which track an event is on, its category says, else its thread. What other programs
// trace is shown as "other". Read as a stream, so that a million events take little more than their spans. Throws
// Error with one sentence that names `source`.
Timeline read_trace(std::string_view json, const std::string& source, const TraceLimits& limits = {});
Timeline load_trace(const std::string& path, const TraceLimits& limits = {});

}  // namespace weft::plan
