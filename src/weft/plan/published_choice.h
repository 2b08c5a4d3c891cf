// PublishedChoice: of one model on the same devices, measured in several layouts: where the predicted best one
// stands.
#pragma once
#include <string>
#include <vector>

#include "weft/plan/validate.h"

namespace weft::plan {

struct PublishedChoice {
  std::string task;    // source, model, batch and devices
  std::string layout;  // the one that is predicted to be the fastest
  int layouts = 0;     // that were measured
  int place = 0;       // of the choice among them by measured time, from 1
  double loss = 0;     // its measured time beyond the fastest one's, as a share of that
};
// Tasks with at least `least_layouts` of them. Of a layout that was measured more than once its fastest run counts.
std::vector<PublishedChoice> published_choices(const std::vector<ValidatedRun>& runs, int least_layouts = 3);

}  // namespace weft::plan
