// Pictures of `weft plan`: what is asked for is drawn and written.
#include "plan_report.h"

#include "weft/base/file.h"
#include "weft/plan/read_trace.h"
#include "weft/plan/report/axis.h"
#include "weft/plan/report/timeline_picture.h"

namespace weft::app {
namespace {

void write(const std::string& path, const std::string& content) {
  write_file_atomically(FileSystem::real(), path, content);
}

}  // namespace

void ReportOptions::add_to(CLI::App& command) {
  command.add_option("--report", report, "Write an HTML report with pictures to this file");
  command.add_option("--svg", svg, "Write the timeline as SVG to this file");
  command.add_option("--beside", beside, "A measured trace.json, whose last step is drawn below the plan");
  command.add_option("--view", view, "A measured trace.json to look at, without a plan");
  command.add_option("--scaling-time", scaling_s, "Seconds to search for the report's curves of scaling; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
}

void ReportOptions::write(plan::Report r) const {
  if (!beside.empty()) r.measured = plan::load_trace(beside);
  if (!svg.empty()) {
    std::vector<plan::Timeline> drawn = {timeline_of(r.layouts.front().plan)};
    if (r.measured) drawn.push_back(last_step_of(*r.measured));
    app::write(svg, draw_timelines(drawn, {.is_document = true}));
  }
  if (report.empty()) return;
  if (scaling_s > 0) {
    r.grown_batch = scaling(*r.request, {.grows_batch = true, .max_seconds = scaling_s / 2});
    r.same_batch = scaling(*r.request, {.max_seconds = scaling_s / 2});
  }
  app::write(report, html_report(r));
}

void ReportOptions::show_trace(const Output& output) const {
  const plan::Timeline t = plan::load_trace(view);
  const std::vector<std::vector<double>> seconds = seconds_by_kind(t);
  nlohmann::json ranks = nlohmann::json::array();
  output.text(fmt::format("{}: {} ranks over {}", view, t.ranks.size(), plan::time_text(t.seconds)));
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    nlohmann::json of_rank = {{"rank", t.ranks[rank]}};
    std::string line;
    for (int kind = 0; kind < plan::kNumSpanKinds; ++kind) {
      const double s = seconds[rank][size_t(kind)];
      const std::string name(name_of(plan::SpanKind(kind)));
      of_rank[name] = s;
      if (s > 0) line += fmt::format("{}{} {:.0f}%", line.empty() ? "" : ", ", name, 100 * s / t.seconds);
    }
    ranks.push_back(std::move(of_rank));
    output.text(fmt::format("  {:<12} {}", t.ranks[rank], line));
  }
  output.json({{"trace", view}, {"seconds", t.seconds}, {"ranks", ranks}});
  if (!svg.empty()) {
    const plan::Timeline drawn[] = {t};
    app::write(svg, draw_timelines(drawn, {.is_document = true}));
  }
  if (report.empty()) return;
  plan::Report r;
  r.measured = t;
  app::write(report, html_report(r));
}

}  // namespace weft::app
