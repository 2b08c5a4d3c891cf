// scaling: a search with few layouts traced in full, at each size.
#include "weft/plan/scaling.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/timing.h"

namespace weft::plan {
namespace {

// By time, whatever the request ranks by.
void plan_point(SearchRequest request, ScalePoint& point) {
  request.rank_by = RankBy::time;
  request.cluster.num_devices = point.num_devices;
  request.global_batch = point.global_batch;
  request.num_full = 2, request.max_times = 1;
  try {
    const SearchResult found = search(request);
    if (found.ranked.empty()) {
      point.why_not = fmt::format("does not fit: {:.1f} GiB are missing", found.nearest_missing_bytes / (1 << 30));
      return;
    }
    const Candidate& best = found.ranked.front();
    point.layout = describe_layout(best.recipe);
    point.step_s = best.plan.step_s, point.tokens_per_s = best.plan.tokens_per_s, point.mfu = best.plan.mfu;
  } catch (const UsageError& e) {
    point.why_not = e.what();
  }
}

// The ends, then what lies in the middle between what is there.
std::vector<size_t> from_coarse_to_fine(size_t count) {
  std::vector<size_t> order;
  std::vector<bool> is_taken(count);
  size_t stride = 1;
  while (stride < count) stride *= 2;
  const auto take = [&](size_t i) {
    if (i < count && !is_taken[i]) order.push_back(i), is_taken[i] = true;
  };
  take(0), take(count - 1);
  for (; stride >= 1; stride /= 2)
    for (size_t i = 0; i < count; i += stride) take(i);
  return order;
}

}  // namespace

ScalePoint scale_point(const SearchRequest& request, int num_devices, int64_t global_batch) {
  ScalePoint point{.num_devices = num_devices, .global_batch = global_batch};
  plan_point(request, point);
  return point;
}

std::vector<ScalePoint> scaling(const SearchRequest& request, const ScalingOptions& options) {
  std::vector<ScalePoint> points;
  for (int n = options.first; n <= options.last; n *= 2) {
    ScalePoint point{.num_devices = n, .global_batch = request.global_batch};
    if (options.grows_batch)
      point.global_batch = std::max<int64_t>(1, request.global_batch * n / request.cluster.num_devices);
    points.push_back(std::move(point));
  }
  const auto begin = std::chrono::steady_clock::now();
  for (const size_t i : from_coarse_to_fine(points.size())) {
    if (seconds_since(begin) > options.max_seconds)
      points[i].why_not = "not planned: the time was over", points[i].is_left_out = true;
    else
      plan_point(request, points[i]);
  }
  return points;
}

}  // namespace weft::plan
