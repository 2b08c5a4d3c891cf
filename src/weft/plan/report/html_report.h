// html_report: a plan, a measured run, or both, as one HTML file without anything from outside.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "weft/plan/scaling.h"
#include "weft/plan/timeline.h"

namespace weft::plan {

// What is there is shown.
struct Report {
  std::string model, cluster;  // as the user called them: not trusted
  std::optional<SearchRequest> request;
  std::vector<Candidate> layouts;  // the first is the choice, or where nothing fits the nearest; its plan has spans
  int num_layouts = 0, num_fitting = 0;  // of a search
  std::string remedy;                    // where nothing fits: what would do
  std::vector<ScalePoint> same_batch, grown_batch;
  std::optional<Timeline> measured;
};

// Readable without JavaScript, which only sorts the table; light and dark as the reader's system is.
std::string html_report(const Report& report);

// The step of a plan as a timeline: a line for each stage.
Timeline timeline_of(const StepPlan& plan);

}  // namespace weft::plan
