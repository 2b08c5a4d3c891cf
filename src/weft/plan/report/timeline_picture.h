// timeline_picture: what each rank did when, as SVG.
#pragma once
#include <span>
#include <string>

#include "weft/plan/report/svg.h"
#include "weft/plan/timeline.h"

namespace weft::plan {

struct TimelinePicture {
  double width = 1120;
  double left = 92;          // of the time axis
  int max_ranks = 48;        // drawn; of more, as many at equal distances
  int max_shapes = 24'000;   // of the whole picture: above it, narrow spans are drawn together
  bool is_document = false;  // a file of its own
  std::string id = "timeline";
};

// One under the other on one time axis. For each rank: actions of a pipeline, what its kernels do, and its
// communication; the light ground that is seen between kernels is waiting: the bubble. Spans narrower than a tenth of
// a pixel are drawn together, in the colour of what takes most of them.
std::string draw_timelines(std::span<const Timeline> timelines, const TimelinePicture& options = {});

}  // namespace weft::plan
