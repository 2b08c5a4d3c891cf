// idle_formula, bubble_formula: what the authors of schedules say of their bubbles, beside which weft's are held.
#pragma once
#include <algorithm>
#include <optional>

#include "weft/parallel/pipeline/check_schedule.h"

namespace weft {

// A rank's idle time in the makespan as the authors derive it, with p ranks, m micro-batches and messages that take
// no time; nothing where there is no closed form.
//   gpipe, one_f_one_b  (p - 1)(F + B + W)   Narayanan et al., 2021, section 2.2
//   interleaved         the same, of one of a rank's v stages, where p divides m; likewise
//   zb_h1               (p - 1)(F + B - W)   Qi et al., 2023, table 1, where W is at most F and B, for m >= p; of
//                       fewer micro-batches only m - 1 have a weight half to fill the bubble with
//   zbv                 (p - 1) F            where F = B = W and m >= 2p - 1: nobody idles once it has begun (Qi et
//                       al., 2024), and the last rank begins so late
inline std::optional<double> idle_formula(const PipelineShape& shape, const ActionCosts& costs) {
  const int ranks = shape.num_ranks, count = shape.num_micro_batches;
  const double forward = costs.forward, input = costs.backward_input, weight = costs.backward_weight;
  if (ranks == 1) return 0;
  switch (shape.kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b: return (ranks - 1) * costs.all();
    case ScheduleKind::interleaved:
      if (count % ranks != 0) return std::nullopt;
      return (ranks - 1) * costs.all();
    case ScheduleKind::zb_h1:
      if (weight > forward || weight > input) return std::nullopt;
      return (ranks - 1) * (forward + input) - (std::min(ranks, count) - 1) * weight;
    case ScheduleKind::zbv:
      if (forward != input || input != weight || count < 2 * ranks - 1) return std::nullopt;
      return (ranks - 1) * forward;
    case ScheduleKind::dualpipe_v: return std::nullopt;
  }
  return std::nullopt;
}

// idle / (idle + work)
inline std::optional<double> bubble_formula(const PipelineShape& shape, const ActionCosts& costs) {
  const auto idle = idle_formula(shape, costs);
  if (!idle) return std::nullopt;
  return *idle / (*idle + shape.num_micro_batches * shape.virtual_stages * costs.all());
}

}  // namespace weft
