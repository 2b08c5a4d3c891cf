// plan_step: what a step of a recipe takes on a cluster: memory of every stage, time, and what bounds it.
#pragma once
#include <algorithm>

#include "weft/plan/simulate.h"
#include "weft/plan/trace_step.h"

namespace weft::plan {

// What a rank holds over time: from points[i].begin_s to the next.
struct MemoryCurve {
  struct Point {
    double begin_s = 0;
    MemorySplit split;
  };
  std::vector<Point> points;
  MemoryPeak peak;
  double peak_s = 0;
};

struct StepPlan {
  std::vector<MemoryPeak> memory;    // of the first rank of each stage
  std::vector<int64_t> state_bytes;  // likewise
  std::vector<int64_t> host_bytes;   // likewise: what the recipe offloads to the host
  int fullest = 0;                   // the stage that holds most
  double capacity_bytes = 0;         // of a device, without what is reserved
  double host_capacity_bytes = 0;    // what of the host's memory is a rank's; 0: not said
  std::vector<int64_t> round_bytes;  // likewise, while answers are made that the model learns from; else empty
  double round_s = 0;                // at most, of a round of such answers
  double round_share_s = 0;          // what of it is a step's
  double answer_tokens_per_s = 0;
  double step_s = 0;  // without that
  int slowest = 0;    // the stage that works longest
  TimeSplit time;     // of that stage
  double bubble = 0;  // share of the step in which ranks wait for other stages, on average
  double tokens_per_s = 0;
  double mfu = 0;        // causal attention counted once
  double mfu_whole = 0;  // attention counted over all pairs, as many papers do
  // When asked for; of a step with fewer micro-batches, where there are many:
  std::vector<Span> spans;
  std::vector<MemoryCurve> curves;  // of each stage
  int64_t num_played = 0;           // micro-batches of that step

  int64_t peak_bytes() const { return memory[size_t(fullest)].split.total(); }
  int64_t most_host_bytes() const { return *std::ranges::max_element(host_bytes); }
  bool fits() const { return missing_bytes() <= 0 && missing_host_bytes() <= 0; }
  double missing_bytes() const { return double(std::max(peak_bytes(), most_round_bytes())) - capacity_bytes; }
  int64_t most_round_bytes() const { return round_bytes.empty() ? 0 : *std::ranges::max_element(round_bytes); }
  double step_with_answers_s() const { return step_s + round_share_s; }
  double missing_host_bytes() const {
    return host_capacity_bytes > 0 ? double(most_host_bytes()) - host_capacity_bytes : 0;
  }
  // "compute: matrix products take 71% of the step": the largest part and what it is.
  std::string bound() const;
};

struct PlanOptions {
  Stack stack;
  bool has_spans = false;
  const ModelConfig* teacher = nullptr;  // of distill.teacher, complete
};

// Steps with many micro-batches are played with fewer, twice, and continued: what one more takes is constant once the
// pipeline is full. The recipe's model must be complete.
StepPlan plan_step(const Recipe& recipe, const Cluster& cluster, const PlanOptions& options = {});

// By whose peak a recipe's use of its devices is told; of fp8 that of bf16, in which attention and the head are.
MatmulType matmul_type(Precision precision);

}  // namespace weft::plan
