// scaling: the best layout at each number of devices, so that one sees how far a run grows.
#pragma once
#include "weft/plan/search.h"

namespace weft::plan {

struct ScalePoint {
  int num_devices = 0;
  int64_t global_batch = 0;
  std::string why_not;       // no plan: what is in the way, or that the time was over
  bool is_left_out = false;  // because of the time
  std::string layout;
  double step_s = 0, tokens_per_s = 0, mfu = 0;

  bool is_planned() const { return why_not.empty(); }
  double tokens_per_s_a_device() const { return tokens_per_s / num_devices; }
};

struct ScalingOptions {
  int first = 8, last = 16'384;  // and the powers of two between
  bool grows_batch = false;      // with the devices; false: the batch stays as it is
  double max_seconds = 30;  // of the search; what is not planned by then is left out, the ends first to be planned
};

// One size alone.
ScalePoint scale_point(const SearchRequest& request, int num_devices, int64_t global_batch);

// The request's own cluster gives the kind of device and the batch beside its number of devices.
std::vector<ScalePoint> scaling(const SearchRequest& request, const ScalingOptions& options = {});

}  // namespace weft::plan
