// draw: a simulated run, scaled so that the shortest action has room for its label.
#include "weft/parallel/pipeline/draw_schedule.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

namespace weft {
namespace {

// As much as fits `width`: part of a number would be another one.
std::string label_of(const Schedule& schedule, const Action& action, size_t width = SIZE_MAX) {
  const int stages = schedule.shape().virtual_stages, rank = schedule.rank_of(action.stage);
  int nth = 0;  // of the rank's stages
  for (int s = 0; s < action.stage; ++s) nth += schedule.rank_of(s) == rank;
  const size_t kind = action.kind == ActionKind::forward ? 0 : action.kind == ActionKind::backward_weight ? 2 : 1;
  const std::string letter(1, stages == 2 && nth == 1 ? "fbw"[kind] : "FBW"[kind]);
  const std::string suffix(stages > 2 ? 1 : 0, nth < 26 ? char('a' + nth) : '*');
  for (const std::string& label : {letter + std::to_string(action.micro_batch) + suffix, letter + suffix})
    if (label.size() <= width) return label;
  return letter.substr(0, width);
}

struct Scale {
  double columns_per_time = 1;
  size_t columns = 0;  // that the whole run takes
  bool has_room_for_labels = true;

  size_t column(double time) const { return size_t(std::lround(time * columns_per_time)); }
};

Scale scale_for(const Schedule& schedule, const ActionCosts& costs, double makespan, size_t room) {
  double shortest = 0;
  for (const double cost : {costs.forward, costs.backward_input, costs.backward_weight})
    if (cost > 0 && (shortest == 0 || cost < shortest)) shortest = cost;
  if (shortest == 0) return {};
  const Action last{ActionKind::forward, 0, schedule.shape().num_micro_batches - 1};
  const double widest = double(label_of(schedule, last).size());
  const double cells = std::clamp(std::floor(double(room) * shortest / makespan), 1.0, widest);
  Scale scale{cells / shortest, 0, cells == widest};
  scale.columns = scale.column(makespan);
  return scale;
}

std::string line_of(const Schedule& schedule, const std::vector<TimedAction>& actions, const Scale& scale) {
  std::string line(scale.columns, '.');
  for (const TimedAction& timed : actions) {
    const size_t begin = scale.column(timed.begin), width = scale.column(timed.end) - begin;
    std::string cell = label_of(schedule, timed.action, width);
    cell.resize(width, '-');
    line.replace(begin, width, cell);
  }
  return line;
}

}  // namespace

std::string draw(const Schedule& schedule, const ActionCosts& costs, int columns) {
  const ScheduleReport report = check_schedule(schedule, costs);
  if (!report.is_sound()) throw Error("{}: {}", name_of(schedule.shape().kind), report.problems.front());
  const auto ranks = simulate(schedule, costs);
  const size_t name_width = fmt::formatted_size("rank {} ", schedule.num_ranks() - 1);
  const size_t room = std::max(size_t(std::max(columns, 0)), name_width + 1) - name_width;
  const Scale scale = scale_for(schedule, costs, report.makespan, room);

  std::string text, peaks;
  for (int r = 0; r < schedule.num_ranks(); ++r) {
    const std::string line = line_of(schedule, ranks[size_t(r)], scale).substr(0, room);
    text += fmt::format("{:{}}{}\n", fmt::format("rank {}", r), name_width, line);
    peaks += fmt::format(" {}", report.ranks[size_t(r)].peak_in_flight);
  }
  if (scale.columns > room) text += fmt::format("the first {} of {} columns\n", room, scale.columns);
  if (!scale.has_room_for_labels) text += "micro-batch numbers stand only where they fit\n";
  return text + fmt::format("makespan {:.4g}, bubble {:.1f} %\nmost stage activations in flight:{}\n",
                            report.makespan, 100 * report.bubble, peaks);
}

}  // namespace weft
