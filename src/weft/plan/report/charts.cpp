// charts: two panels of curves, and bars of parts.
#include "weft/plan/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "weft/plan/report/axis.h"
#include "weft/plan/report/svg.h"

namespace weft::plan {
namespace {

constexpr double kWidth = 1120;

struct Series {
  std::span<const ScalePoint> points;
  std::string_view cls, name;

  const ScalePoint* first() const {
    const auto found = std::ranges::find_if(points, &ScalePoint::is_planned);
    return found == points.end() ? nullptr : &*found;
  }
};

// Of one panel: where it stands, and what it shows of a point.
struct Panel {
  double x, y, width, height, top_value;
  int first_devices, last_devices;
  std::function<double(const Series&, const ScalePoint&)> value;
  std::function<std::string(double)> text;

  double at_x(int devices) const {
    const double decades = std::log2(double(last_devices) / first_devices);
    return x + (decades > 0 ? std::log2(double(devices) / first_devices) / decades : 0) * width;
  }
  double at_y(double v) const { return y + height - v / top_value * height; }
};

void draw_frame(Svg& svg, const Panel& p, std::string_view title) {
  svg.text("label", p.x, p.y - 10, title);
  for (const double tick : round_ticks(p.top_value, 5)) {
    svg.line(tick == 0 ? "axis" : "grid", p.x, p.at_y(tick), p.x + p.width, p.at_y(tick));
    svg.text("small", p.x - 7, p.at_y(tick) + 3.5, p.text(tick), "end");
  }
  for (int n = p.first_devices; n <= p.last_devices; n *= 2) {
    svg.line("axis", p.at_x(n), p.y + p.height, p.at_x(n), p.y + p.height + 4);
    svg.text("small", p.at_x(n), p.y + p.height + 16,
             n < 10'000 ? fmt::format("{}", n) : fmt::format("{}k", n / 1024), "middle");
  }
  svg.text("small", p.x + p.width / 2, p.y + p.height + 32, "devices", "middle");
}

void draw_series(Svg& svg, const Panel& p, const Series& s) {
  std::string d;
  bool is_open = false;
  for (const ScalePoint& point : s.points) {
    if (!point.is_planned()) {
      is_open = is_open && point.is_left_out;  // the line goes on behind it
      continue;
    }
    d += fmt::format("{}{} {}", is_open ? "L" : "M", coordinate(p.at_x(point.num_devices)),
                     coordinate(p.at_y(p.value(s, point))));
    is_open = true;
  }
  if (d.empty()) return;
  svg.path(s.cls, d);
  for (const ScalePoint& point : s.points)
    if (point.is_planned())
      svg.circle(fmt::format("{}-dot", s.cls), p.at_x(point.num_devices), p.at_y(p.value(s, point)), 3.5,
                 fmt::format("{} devices, {} rows: {} a step, {} tokens/s; {}", point.num_devices, point.global_batch,
                             time_text(point.step_s), count_text(point.tokens_per_s), point.layout));
}

struct Part {
  std::string_view cls, name;
  double (*seconds)(const TimeSplit&);
};
constexpr Part kParts[] = {
    {"p-products", "matrix products", [](const TimeSplit& t) { return t.matmul_s; }},
    {"p-attention", "attention", [](const TimeSplit& t) { return t.attention_s; }},
    {"p-kernels", "other kernels", [](const TimeSplit& t) { return t.memory_s; }},
    {"p-update", "update", [](const TimeSplit& t) { return t.update_s; }},
    {"p-wait", "collectives waited for", [](const TimeSplit& t) { return t.exposed_total(); }},
    {"p-bubble", "bubble", [](const TimeSplit& t) { return t.bubble_s + t.idle_s; }},
};

}  // namespace

std::string draw_scaling(std::span<const ScalePoint> same, std::span<const ScalePoint> grown) {
  const Series all[] = {{same, "c-same", "the same batch at every size"},
                        {grown, "c-grown", "a batch that grows with the devices"}};
  double most = 0, most_efficiency = 1;
  int first = INT32_MAX, last = 0;
  const auto efficiency = [](const Series& s, const ScalePoint& p) {
    return p.tokens_per_s_a_device() / s.first()->tokens_per_s_a_device();
  };
  for (const Series& s : all)
    for (const ScalePoint& p : s.points) {
      first = std::min(first, p.num_devices), last = std::max(last, p.num_devices);
      if (!p.is_planned()) continue;
      most = std::max(most, p.tokens_per_s_a_device());
      most_efficiency = std::max(most_efficiency, efficiency(s, p));
    }
  Svg svg("scaling", kWidth, "Scaling",
          fmt::format("Tokens a second and device, and efficiency, from {} to {} devices", first, last));
  double at = 64;
  for (const Series& s : all) {
    if (s.points.empty()) continue;
    svg.line(s.cls, at, 12, at + 22, 12);
    svg.text("label", at + 28, 16, s.name);
    at += 28 + text_width(s.name, 11) + 18;
  }
  constexpr double kPanel = 462, kGap = 98;
  Panel rate{.x = 64,
             .y = 50,
             .width = kPanel,
             .height = 210,
             .top_value = 1.1 * std::max(most, 1e-9),
             .first_devices = first,
             .last_devices = last,
             .value = [](const Series&, const ScalePoint& p) { return p.tokens_per_s_a_device(); },
             .text = [](double v) { return count_text(v); }};
  draw_frame(svg, rate, "Tokens a second and device");
  for (const Series& s : all) draw_series(svg, rate, s);
  Panel share = rate;
  share.x = rate.x + kPanel + kGap, share.top_value = 1.1 * most_efficiency;
  share.value = efficiency, share.text = [](double v) { return fmt::format("{:.0f}%", 100 * v); };
  draw_frame(svg, share, "Efficiency beside the smallest size");
  svg.line("ideal", share.x, share.at_y(1), share.x + kPanel, share.at_y(1));
  for (const Series& s : all) draw_series(svg, share, s);
  return svg.finish(300);
}

std::string draw_breakdown(std::span<const Candidate> layouts) {
  constexpr double kLeft = 8, kRight = 70, kBar = 16, kRow = 40;
  double slowest = 0;
  for (const Candidate& c : layouts) slowest = std::max(slowest, c.plan.step_s);
  Svg svg("breakdown", kWidth, "Where the time goes", fmt::format("{} layouts", layouts.size()));
  double at = kLeft;
  for (const Part& part : kParts) {
    svg.rect(part.cls, at, 7, 10, 10);
    svg.text("label", at + 15, 16, part.name);
    at += 15 + text_width(part.name, 11) + 14;
  }
  double y = 34;
  for (const Candidate& c : layouts) {
    svg.text("label", kLeft, y + 8, describe_layout(c.recipe));
    double x = kLeft;
    const double scale = (kWidth - kLeft - kRight) / slowest;
    for (const Part& part : kParts) {
      const double seconds = std::max(0.0, part.seconds(c.plan.time));
      const std::string share = fmt::format("{:.0f}%", 100 * seconds / c.plan.step_s);
      if (seconds * scale < 0.05) continue;
      svg.rect(part.cls, x, y + 14, seconds * scale, kBar,
               fmt::format("{}: {}, {} of the step", part.name, time_text(seconds), share));
      if (seconds * scale > text_width(share, 9) + 6)
        svg.text("in", x + seconds * scale / 2, y + 14 + kBar / 2 + 3.2, share, "middle");
      x += seconds * scale;
    }
    svg.text("small", x + 6, y + 14 + kBar / 2 + 3.5, time_text(c.plan.step_s));
    y += kRow;
  }
  return svg.finish(y);
}

}  // namespace weft::plan
