// validate: predicted step times beside measured ones of published runs.
#pragma once
#include <optional>

#include "weft/plan/csv.h"
#include "weft/plan/step_plan.h"

namespace weft::plan {

// One published run as weft would run it.
struct MeasuredRun {
  std::string id, source;  // "zb-001" is of the source "zb"
  Recipe recipe;
  Cluster cluster;
  Stack stack;
  double measured_s = 0;
};
// Columns as in docs/planning.md. Why a row cannot be compared, or the run: an unknown device, no time, a batch
// that does not divide, ...
struct ReadRun {
  std::optional<MeasuredRun> run;
  std::string id, why_not;
};
ReadRun read_run(const CsvRow& row);

struct ValidatedRun {
  std::string id, source;
  double measured_s = 0, predicted_s = 0;
  TimeSplit time{};          // of the predicted step, of the slowest stage
  std::string task, layout;  // what was trained on which devices, and how
  double error() const { return predicted_s / measured_s - 1; }
};
struct ErrorSummary {
  int count = 0;
  double median = 0, p90 = 0, mean = 0;  // of absolute errors
  double bias = 0;                       // median of errors with their signs
};
ErrorSummary summarise(const std::vector<ValidatedRun>& runs, std::string_view source = {});

struct Validation {
  std::vector<ValidatedRun> runs;
  std::vector<ReadRun> left_out;
  std::vector<std::string> sources() const;  // each once
};
Validation validate(const std::vector<CsvRow>& rows);

}  // namespace weft::plan
