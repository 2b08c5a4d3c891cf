// RoutingReplay: choices by layer, step and token.
#include "weft/parallel/expert/routing_replay.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

void RoutingReplay::record(const Pass& pass, const int32_t* experts) {
  const std::lock_guard lock(mutex_);
  std::vector<int32_t>& all = experts_[{pass.layer, pass.step}];
  for (const TokenSpan& span : pass.tokens) {
    const auto end = size_t((span.first_token + span.count) * pass.k);
    if (all.size() < end) all.resize(end, -1);
    std::copy_n(experts + span.begin * pass.k, span.count * pass.k, all.data() + span.first_token * pass.k);
  }
}

void RoutingReplay::replay(const Pass& pass, int32_t* experts) {
  const std::lock_guard lock(mutex_);
  const auto found = experts_.find({pass.layer, pass.step});
  Count& count = counts_[pass.layer];
  for (const TokenSpan& span : pass.tokens) {
    const auto end = size_t((span.first_token + span.count) * pass.k);
    check(found != experts_.end() && found->second.size() >= end, "one rank did not route the tokens of step {}",
          pass.step);
    const int32_t* given = found->second.data() + span.first_token * pass.k;
    int32_t* own = experts + span.begin * pass.k;
    for (int64_t t = 0; t < span.count; ++t, given += pass.k, own += pass.k) {
      check(given[0] >= 0, "one rank did not route a token of step {}", pass.step);
      for (int64_t j = 0; j < pass.k; ++j) count.same += std::find(own, own + pass.k, given[j]) != own + pass.k;
      count.all += pass.k;
      std::copy_n(given, pass.k, own);
    }
  }
}

double RoutingReplay::take_least_share_of_same() {
  const std::lock_guard lock(mutex_);
  double least = 1;
  for (const auto& [layer, count] : counts_)
    if (count.all > 0) least = std::min(least, double(count.same) / double(count.all));
  counts_.clear();
  return least;
}

}  // namespace weft
