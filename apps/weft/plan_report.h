// Pictures of `weft plan`: an HTML report or an SVG, of a plan, of a measured trace, or of both.
#pragma once
#include "command.h"
#include "weft/plan/report/html_report.h"

namespace weft::app {

struct ReportOptions {
  std::string report, svg;   // files to write
  std::string view, beside;  // measured traces
  double scaling_s = 60;     // of searching for the curves

  void add_to(CLI::App& command);
  bool is_asked() const { return !report.empty() || !svg.empty(); }
  // The report without its curves and trace, which are filled in here.
  void write(plan::Report report_of_plan) const;
  // A measured trace alone: where its time goes, and the files.
  void show_trace(const Output& output) const;
};

}  // namespace weft::app
