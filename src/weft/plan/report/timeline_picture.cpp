// timeline_picture: lanes of rectangles, the narrow ones drawn together.
#include "weft/plan/report/timeline_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "weft/plan/report/axis.h"

namespace weft::plan {
namespace {

// What is drawn as one: spans without a visible gap, or a single one.
struct Bar {
  double begin_s = 0, end_s = 0;
  std::array<double, kNumSpanKinds> seconds{};
  int64_t count = 0;
  Span only;  // of one

  SpanKind kind() const { return SpanKind(std::ranges::max_element(seconds) - seconds.begin()); }
};

// spans: in order, without overlap.
std::vector<Bar> bars_of(const std::vector<Span>& spans, double narrow_s) {
  std::vector<Bar> bars;
  for (const Span& s : spans) {
    const bool is_narrow = s.end_s - s.begin_s < narrow_s;
    const bool joins = !bars.empty() && is_narrow && s.begin_s - bars.back().end_s < narrow_s &&
                       (bars.back().count > 1 || bars.back().end_s - bars.back().begin_s < narrow_s) &&
                       s.end_s - bars.back().begin_s <= 4 * narrow_s;
    if (!joins) bars.push_back({.begin_s = s.begin_s, .only = s});
    Bar& b = bars.back();
    b.end_s = s.end_s;
    b.seconds[size_t(s.kind)] += s.end_s - s.begin_s;
    ++b.count;
  }
  return bars;
}

std::string class_of(SpanKind kind) {
  std::string name(name_of(kind));
  std::ranges::replace(name, ' ', '-');
  return "k-" + name;
}

std::string tooltip_of(const Bar& b) {
  const std::string when = fmt::format("{} at {}", time_text(b.end_s - b.begin_s), time_text(b.begin_s, b.end_s));
  if (b.count > 1) return fmt::format("{} spans, mostly {}: {}", b.count, name_of(b.kind()), when);
  const Span& s = b.only;
  std::string text(s.name);
  if (name_of(s.kind) != s.name) text += fmt::format(" ({})", name_of(s.kind));
  if (!s.group.empty()) text += fmt::format(" of {}", s.group);
  if (s.stage >= 0) text += fmt::format(", stage {}", s.stage);
  if (s.micro_batch >= 0) text += fmt::format(", micro-batch {}", s.micro_batch);
  if (s.bytes > 0) text += ", " + bytes_text(s.bytes);
  return text + ": " + when;
}

// "F3": what fits on an action.
std::string action_label(const Span& s) {
  const char letter = s.kind == SpanKind::forward ? 'F' : s.kind == SpanKind::weight_gradient ? 'W' : 'B';
  return s.micro_batch < 0 ? std::string(1, letter) : fmt::format("{}{}", letter, s.micro_batch);
}

struct Lane {
  TraceTrack track;
  double height;
};
constexpr Lane kLanes[] = {{TraceTrack::pipeline, 14}, {TraceTrack::compute, 13}, {TraceTrack::communication, 7}};

// The spans of the ranks that are drawn, by lane.
struct Rows {
  std::string name, note;
  std::vector<std::string> labels;
  std::vector<std::array<std::vector<Span>, kNumTraceTracks>> lanes;
};

Rows rows_of(const Timeline& t, int max_ranks) {
  Rows rows{.name = t.name, .note = t.note, .labels = {}, .lanes = {}};
  const int all = int(t.ranks.size()), drawn = std::min(all, max_ranks);
  std::vector<int> row_of_rank(t.ranks.size(), -1);
  for (int row = 0; row < drawn; ++row) {
    const int rank = drawn > 1 ? int(int64_t(row) * (all - 1) / (drawn - 1)) : 0;
    row_of_rank[size_t(rank)] = row;
    rows.labels.push_back(t.ranks[size_t(rank)]);
  }
  if (drawn < all) rows.note += fmt::format("{} of {} ranks are drawn; ", drawn, all);
  rows.lanes.resize(size_t(drawn));
  for (const Span& s : t.spans)
    if (const int row = row_of_rank[size_t(s.rank)]; row >= 0) rows.lanes[size_t(row)][size_t(s.track)].push_back(s);
  for (auto& lanes : rows.lanes)
    for (std::vector<Span>& lane : lanes) lane = flattened(std::move(lane));
  return rows;
}

class TimelineDrawing {
 public:
  TimelineDrawing(const TimelinePicture& options, double seconds, int num_lanes, Svg& svg)
      : o_(options), svg_(svg), seconds_(seconds), pixel_s_(seconds / (o_.width - o_.left - kRight)) {
    // At least a tenth of a pixel, and so that all lanes together stay below the number of shapes.
    const double shapes = double(o_.max_shapes) / std::max(num_lanes, 1);
    narrow_s_ = std::max(0.1 * pixel_s_, seconds_ / shapes);
  }
  static constexpr double kRight = 14;

  double x(double s) const { return o_.left + s / pixel_s_; }

  void legend(double y, const std::array<bool, kNumSpanKinds>& used) {
    double at = o_.left;
    const auto entry = [&](const std::string& cls, std::string_view name) {
      const double width = 15 + text_width(name, 11) + 14;
      svg_.rect(cls, at, y - 9, 10, 10);
      svg_.text("label", at + 15, y, name);
      at += width;
    };
    for (int kind = 0; kind < kNumSpanKinds; ++kind)
      if (used[size_t(kind)]) entry(class_of(SpanKind(kind)), name_of(SpanKind(kind)));
    entry("lane", "bubble");
  }

  // Returns where it ends. Grounds first, then the grid, then what happened.
  double rows(const Rows& rows, double y) {
    const double top = y;
    for (const auto& lanes : rows.lanes) y = draw_ground(lanes, y);
    for (const double tick : round_ticks(seconds_, 10)) svg_.line("grid", x(tick), top, x(tick), y - 6);
    y = top;
    for (size_t row = 0; row < rows.lanes.size(); ++row) y = draw_row(rows.labels[row], rows.lanes[row], y);
    return y;
  }

  void axis(double y) {
    svg_.line("axis", o_.left, y, o_.width - kRight, y);
    for (const double tick : round_ticks(seconds_, 10)) {
      svg_.line("axis", x(tick), y, x(tick), y + 4);
      svg_.text("small", x(tick), y + 15, time_text(tick, seconds_), "middle");
    }
  }

 private:
  using Lanes = std::array<std::vector<Span>, kNumTraceTracks>;
  static bool is_drawn(const Lanes& lanes, const Lane& lane) {
    return !lanes[size_t(lane.track)].empty() || lane.track == TraceTrack::compute;
  }

  // Each returns where the next row begins.
  double draw_ground(const Lanes& lanes, double y) {
    for (const Lane& lane : kLanes) {
      if (!is_drawn(lanes, lane)) continue;
      if (lane.track != TraceTrack::communication) svg_.rect("lane", o_.left, y, seconds_ / pixel_s_, lane.height);
      y += lane.height + 1;
    }
    return y + 8;
  }
  double draw_row(const std::string& label, const Lanes& lanes, double y) {
    const double top = y;
    for (const Lane& lane : kLanes) {
      if (!is_drawn(lanes, lane)) continue;
      draw_lane(lanes[size_t(lane.track)], lane, y);
      y += lane.height + 1;
    }
    std::string shown = label;
    while (shown.size() > 1 && text_width(shown, 11) > o_.left - 12) {
      shown.pop_back();
      while (!shown.empty() && (shown.back() & 0xC0) == 0x80) shown.pop_back();
    }
    svg_.text("label", o_.left - 8, (top + y) / 2 + 4, shown, "end");
    return y + 8;
  }

  void draw_lane(const std::vector<Span>& spans, const Lane& lane, double y) {
    const std::vector<Bar> bars = bars_of(spans, narrow_s_);
    for (int kind = 0; kind < kNumSpanKinds; ++kind) {
      bool is_open = false;
      for (const Bar& b : bars) {
        if (b.kind() != SpanKind(kind)) continue;
        if (!std::exchange(is_open, true)) svg_.open_group(class_of(SpanKind(kind)));
        const double width = (b.end_s - b.begin_s) / pixel_s_;
        const bool has_gap = lane.track == TraceTrack::pipeline && width > 3;
        svg_.rect({}, x(b.begin_s), y, width - (has_gap ? 0.6 : 0), lane.height, tooltip_of(b));
      }
      if (is_open) svg_.close_group();
    }
    if (lane.track != TraceTrack::pipeline) return;
    for (const Bar& b : bars) {
      const double width = (b.end_s - b.begin_s) / pixel_s_;
      std::string label = b.count == 1 ? action_label(b.only) : "";
      if (text_width(label, 9) + 2 > width)
        label.resize(std::min<size_t>(label.size(), 1));  // a cut number is another
      if (!label.empty() && text_width(label, 9) + 2 < width)
        svg_.text("in", x(b.begin_s) + width / 2, y + lane.height / 2 + 3.2, label, "middle");
    }
  }

  const TimelinePicture& o_;
  Svg& svg_;
  double seconds_, pixel_s_, narrow_s_;
};

}  // namespace

std::string draw_timelines(std::span<const Timeline> timelines, const TimelinePicture& options) {
  double seconds = 0;
  std::vector<Rows> all;
  std::array<bool, kNumSpanKinds> used{};
  int num_lanes = 0;
  std::string said;
  for (const Timeline& t : timelines) {
    seconds = std::max(seconds, t.seconds);
    all.push_back(rows_of(t, options.max_ranks));
    for (const auto& lanes : all.back().lanes)
      for (const std::vector<Span>& lane : lanes) {
        num_lanes += !lane.empty();
        for (const Span& s : lane) used[size_t(s.kind)] = true;
      }
    said += fmt::format("{}{}: {} of {} ranks over {}", said.empty() ? "" : "; ", t.name, all.back().labels.size(),
                        t.ranks.size(), time_text(t.seconds));
  }
  Svg svg(options.id, options.width, "Timeline", said);
  TimelineDrawing drawing(options, std::max(seconds, 1e-9), num_lanes, svg);
  double y = 16;
  drawing.legend(y, used);
  y += 14;
  for (const Rows& rows : all) {
    if (all.size() > 1 || options.is_document) {
      y += 14;
      svg.text("head", 8, y, rows.name);
      y += 10;
    } else {
      y += 4;
    }
    y = drawing.rows(rows, y);
    if (!rows.note.empty()) {
      std::string note = rows.note;
      if (note.ends_with("; ")) note.resize(note.size() - 2);
      svg.text("small", options.left, y + 4, note);
      y += 14;
    }
  }
  drawing.axis(y);
  return svg.finish(y + 22, options.is_document);
}

}  // namespace weft::plan
