// Metrics: what a run writes to metrics.jsonl, a line a step, complete and without repeats also after a resume.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "weft/train/policy/policy_figures.h"
#include "weft/train/step_lines.h"
#include "weft/train/validation.h"

namespace weft {

// What is known of one training step. NaN stands for what was not measured, and is written as null.
struct StepMetrics {
  int64_t step = 0;
  double loss = 0;                 // nats per token
  std::optional<double> mtp_loss;  // of the token further on, where the model has a part for that
  std::optional<double> expert_load, expert_rank_load;  // as StepResult has them
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // seen since the start of the run, over all ranks
  double tokens_per_s = 0;
  double step_s = 0;
  double mfu = 0, hfu = 0;              // of the peak, 0 to 1
  std::span<const int64_t> peak_bytes;  // one per rank
  double comm_s = 0;                    // waiting for communication
  std::optional<PolicyFigures> policy = {};
  double bubble = 0;  // share of the step that pipeline stages idle, 0 to 1
};

class MetricsFile {
 public:
  // last_step: as StepLines has it.
  MetricsFile(FileSystem& fs, std::string path, int64_t last_step) : lines_(fs, std::move(path), last_step) {}

  void write(const StepMetrics& metrics);
  void write_eval(int64_t step, const Validation& validation);
  // blocked_s: how long training stood still for it; seconds: until it could be loaded.
  void write_checkpoint(int64_t step, double blocked_s, double seconds);

 private:
  void end_line();

  fmt::memory_buffer line_;
  StepLines lines_;
};

}  // namespace weft
