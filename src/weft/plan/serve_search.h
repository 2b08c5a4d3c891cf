// search_serving: all layouts of a number of devices for a served model, ranked, with why the others lose.
#pragma once
#include <string>
#include <vector>

#include "weft/plan/serve_plan.h"

namespace weft::plan {

enum class ServeTarget : uint8_t {
  latency,     // from one token of an answer to the next, alone on its replica
  throughput,  // tokens of answers a second over all devices, prompts among them
};

struct ServeSearchRequest {
  ServeRequest serve;  // its model's blocks are those of the first choice below
  // As --quantize has them, the mildest first. The first is what the weights are without asking; a later one is
  // chosen only where those before do not fit.
  std::vector<std::string> quantize = {"auto", "q8_0", "int8", "fp8", "q6_k", "q4_k", "nf4"};
  ServeTarget target = ServeTarget::latency;
  double ttft_limit_s = 0, tpot_limit_s = 0;  // 0: none
  bool is_one_replica = false;                // all devices serve together
};

struct ServeCandidate {
  std::string quantize;
  ServePlan plan;
  int chosen = 0;     // of plan.batches: as large as the limits allow, and best for the target
  std::string loses;  // what it loses on, beside the first of its kind

  const ServeBatch& batch() const { return plan.batches[size_t(chosen)]; }
};

struct ServeSearchResult {
  std::vector<ServeCandidate> ranked;        // that fit and keep the limits, of one way to hold weights
  std::vector<ServeCandidate> more_rounded;  // the best of each other way, those that lose more digits
  int num_layouts = 0;                       // looked at
  // Where weights as they are do not fit: the layout that misses least. And where nothing keeps the limits: the one
  // that comes nearest.
  std::optional<ServeCandidate> nearest, too_slow;
  std::string quantize_that_fits;  // on these devices; empty: none
  int devices_that_fit = 0;        // as weights are; 0: none up to 16 times as many
};

// Throws UsageError when no layout can cut the model at all.
ServeSearchResult search_serving(const ServeSearchRequest& request);

// "2 x tp=4,pp=2".
std::string describe_layout(const ServePlan& plan);

}  // namespace weft::plan
