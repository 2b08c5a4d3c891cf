// weft plan MODEL: the layouts of a training run on a cluster, and published runs beside what is predicted for them.
#pragma once
#include "mesh_options.h"
#include "plan_report.h"
#include "weft/plan/search.h"

namespace weft::app {

struct TrainPlanOptions {
  std::string model;         // a preset, a model's folder or file, or a recipe (.toml)
  std::string cluster;       // "64xh100-sxm"
  std::string mesh;          // "": search
  MeshOptions mesh_options;  // beside `mesh`
  int64_t seq_len = 0, global_batch = 0;
  std::string precision, gradients;  // "": the recipe's, or bf16 and fp32
  bool has_fp8 = false;
  double expert_load = 0;  // 0: experts are equally busy
  std::string rank_by = "time";
  int top = 5;
  std::string recipe, timeline, data = "data.txt";  // files
  ReportOptions pictures;
};

void plan_training(const TrainPlanOptions& options, const Output& output);

// A table of published runs, as CSV with the columns of docs/planning.md.
void validate_runs(const std::string& path, const Output& output);

}  // namespace weft::app
