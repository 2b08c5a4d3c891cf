// A table of published runs from outside: read, and small runs planned.
#include <cmath>
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/plan/validate.h"

namespace weft {
namespace {

bool is_small(const plan::MeasuredRun& run) {
  const MeshShape& shape = run.recipe.mesh.shape;
  const ModelConfig& model = run.recipe.model;
  const int most = 4, most_devices = 64;
  return model.layers <= most && model.experts <= most && run.recipe.train.micro_batch <= most && shape.pp <= most &&
         shape.cp <= most && run.cluster.num_devices <= most_devices;
}

void expect_whole(const plan::MeasuredRun& run) {
  const TrainConfig& t = run.recipe.train;
  const MeshShape& shape = run.recipe.mesh.shape;
  const bool is_whole = shape.size() == run.cluster.num_devices && t.micro_batch >= 1 && t.accumulation >= 1 &&
                        t.micro_batch * t.accumulation * shape.dp() == t.global_batch;
  if (!is_whole || !(run.measured_s > 0 && std::isfinite(run.measured_s))) std::abort();
}

}  // namespace

void fuzz_published(Bytes input) {
  expect_errors_only([&] {
    int num_planned = 0;
    for (const plan::CsvRow& row : plan::read_csv(text_of(input), "runs.csv")) {
      const plan::ReadRun read = plan::read_run(row);
      if (!read.run) {
        if (read.why_not.empty()) std::abort();
        continue;
      }
      expect_whole(*read.run);
      constexpr int kMostPlanned = 2;
      if (!is_small(*read.run) || ++num_planned > kMostPlanned) continue;
      for (const plan::ValidatedRun& run : plan::validate({row}).runs)
        if (!(run.predicted_s > 0 && std::isfinite(run.predicted_s))) std::abort();
    }
  });
}

}  // namespace weft
