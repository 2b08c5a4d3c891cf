// memory_picture: areas on each other, a column for each pixel.
#include "weft/plan/report/memory_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "weft/plan/report/axis.h"
#include "weft/plan/report/svg.h"

namespace weft::plan {
namespace {

constexpr double kRight = 14, kHeight = 96;

// What is held at most in each pixel's time.
std::vector<MemorySplit> columns_of(const MemoryCurve& curve, double seconds, int num_columns) {
  std::vector<std::optional<MemorySplit>> most{size_t(num_columns)};
  std::vector<MemorySplit> last{size_t(num_columns)};
  for (const MemoryCurve::Point& p : curve.points) {
    const auto column = size_t(std::clamp(int(p.begin_s / seconds * num_columns), 0, num_columns - 1));
    if (!most[column] || most[column]->total() < p.split.total()) most[column] = p.split;
    last[column] = p.split;
  }
  std::vector<MemorySplit> columns;
  MemorySplit now;
  for (size_t i = 0; i < most.size(); ++i) {
    columns.push_back(most[i] && most[i]->total() > now.total() ? *most[i] : now);
    if (most[i]) now = last[i];
    if (i == 0) columns[0] = most[0].value_or(now);
  }
  return columns;
}

// The uses up to `top` on each other, from the ground up.
std::string area(const std::vector<MemorySplit>& columns, int top, double left, double ground, double scale) {
  std::string d = fmt::format("M{} {}", coordinate(left), coordinate(ground));
  std::string before;
  for (size_t i = 0; i < columns.size(); ++i) {
    double sum = 0;
    for (int use = 0; use <= top; ++use) sum += double(columns[i][MemoryUse(use)]);
    const std::string y = coordinate(ground - sum * scale);
    if (y != before) d += (i == 0 ? "V" : "H" + coordinate(left + double(i)) + "V") + y;
    before = y;
  }
  return d + "H" + coordinate(left + double(columns.size())) + "V" + coordinate(ground) + "Z";
}

std::vector<int> stages_shown(const StepPlan& plan, int most) {
  const int all = int(plan.curves.size()), shown = std::min(all, most);
  std::vector<int> stages;
  for (int i = 0; i < shown; ++i) stages.push_back(shown > 1 ? i * (all - 1) / (shown - 1) : plan.fullest);
  if (std::ranges::find(stages, plan.fullest) == stages.end()) {
    const auto nearest =
        std::ranges::min_element(stages, {}, [&](int stage) { return std::abs(stage - plan.fullest); });
    *nearest = plan.fullest;
  }
  return stages;
}

}  // namespace

std::string draw_memory(const StepPlan& plan, double seconds, const MemoryPicture& o) {
  const std::vector<int> stages = stages_shown(plan, o.max_stages);
  const double peak = double(plan.peak_bytes());
  const bool shows_limit = plan.capacity_bytes > 0 && plan.capacity_bytes < 2.5 * peak;
  const double top = 1.12 * std::max(peak, shows_limit ? plan.capacity_bytes : 0.0);
  Svg svg(o.id, o.width, "Memory over a step",
          fmt::format("{} of {} stages; the fullest holds {}", stages.size(), plan.curves.size(), bytes_text(peak)));
  const double scale = kHeight / std::max(top, 1.0), right = o.width - kRight;
  double at = o.left;
  for (int use = 0; use < kNumMemoryUses; ++use) {
    const std::string name(name_of(MemoryUse(use)));
    svg.rect("m-" + name, at, 7, 10, 10);
    svg.text("label", at + 15, 16, name);
    at += 15 + text_width(name, 11) + 14;
  }
  if (shows_limit) {
    svg.line("limit", at, 12, at + 22, 12);
    svg.text("label", at + 28, 16, fmt::format("{} for tensors", bytes_text(plan.capacity_bytes)));
  }
  double unit = 1;  // in which round numbers are round
  while (top >= 1024 * unit) unit *= 1024;
  double y = 32;
  for (const int stage : stages) {
    const MemoryCurve& curve = plan.curves[size_t(stage)];
    const double ground = y + 16 + kHeight;
    const double held = double(curve.peak.split.total());
    const std::string said =
        fmt::format("{}peak {}: {}", plan.curves.size() > 1 ? fmt::format("stage {}, ", stage) : "", bytes_text(held),
                    curve.peak.where);
    svg.text("label", o.left, y + 10, said);
    svg.rect("lane", o.left, ground - kHeight, right - o.left, kHeight);
    for (const double tick : round_ticks(top / unit, 3)) {
      const double line = ground - tick * unit * scale;
      if (tick > 0) svg.line("grid", o.left, line, right, line);
      svg.text("small", o.left - 8, line + 3.5, bytes_text(tick * unit), "end");
    }
    const std::vector<MemorySplit> columns = columns_of(curve, seconds, int(right - o.left));
    for (int use = kNumMemoryUses - 1; use >= 0; --use) {
      const MemoryUse u{static_cast<uint8_t>(use)};
      svg.path(fmt::format("m-{}", name_of(u)), area(columns, use, o.left, ground, scale),
               fmt::format("{}: {} at the peak", name_of(u), bytes_text(double(curve.peak.split[u]))));
    }
    if (shows_limit) {
      const double limit = ground - plan.capacity_bytes * scale;
      svg.line("limit", o.left, limit, right, limit);
    }
    const double x = o.left + curve.peak_s / seconds * (right - o.left), mark = ground - held * scale;
    svg.line("mark-line", x, y + 16, x, mark);
    svg.circle("mark", x, mark, 3.5, said);
    y = ground + 12;
  }
  svg.line("axis", o.left, y, right, y);
  for (const double tick : round_ticks(seconds, 10)) {
    const double x = o.left + tick / seconds * (right - o.left);
    svg.line("axis", x, y, x, y + 4);
    svg.text("small", x, y + 15, time_text(tick, seconds), "middle");
  }
  return svg.finish(y + 22);
}

}  // namespace weft::plan
