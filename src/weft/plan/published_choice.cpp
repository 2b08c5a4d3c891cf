// published_choices: runs by task and layout.
#include "weft/plan/published_choice.h"

#include <algorithm>
#include <map>

namespace weft::plan {

std::vector<PublishedChoice> published_choices(const std::vector<ValidatedRun>& runs, int least_layouts) {
  std::map<std::string, std::map<std::string, const ValidatedRun*>> tasks;
  for (const ValidatedRun& r : runs) {
    const ValidatedRun*& fastest = tasks[r.task][r.layout];
    if (!fastest || r.measured_s < fastest->measured_s) fastest = &r;
  }
  std::vector<PublishedChoice> choices;
  for (const auto& [task, layouts] : tasks) {
    if (int(layouts.size()) < least_layouts) continue;
    const ValidatedRun* choice = layouts.begin()->second;
    double best = choice->measured_s;
    for (const auto& [layout, run] : layouts) {
      if (run->predicted_s < choice->predicted_s) choice = run;
      best = std::min(best, run->measured_s);
    }
    const auto before = std::ranges::count_if(
        layouts, [&](const auto& of_layout) { return of_layout.second->measured_s < choice->measured_s; });
    choices.push_back({.task = task,
                       .layout = choice->layout,
                       .layouts = int(layouts.size()),
                       .place = int(before) + 1,
                       .loss = choice->measured_s / best - 1});
  }
  return choices;
}

}  // namespace weft::plan
