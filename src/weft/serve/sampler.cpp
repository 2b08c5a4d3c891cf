// Sampler: temperature, the three filters, then one uniform number.
#include "weft/serve/sampler.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/philox.h"

namespace weft {

void check_sampling(const SamplingOptions& o) {
  if (!(o.temperature >= 0 && o.temperature <= 100))
    throw UsageError("--temperature {}: write a number from 0 (greedy) to 100", o.temperature);
  if (o.top_k < 0) throw UsageError("--top-k {}: write 0 (off) or more", o.top_k);
  if (!(o.top_p > 0 && o.top_p <= 1)) throw UsageError("--top-p {}: write a number above 0, up to 1 (off)", o.top_p);
  if (!(o.min_p >= 0 && o.min_p <= 1)) throw UsageError("--min-p {}: write a number from 0 (off) to 1", o.min_p);
}

int32_t Sampler::choose(std::span<const float> logits, uint64_t position) {
  check(!logits.empty(), "there are no logits to choose from");
  const auto top = std::max_element(logits.begin(), logits.end());
  if (options_.temperature == 0) return int32_t(top - logits.begin());
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    candidates_[i] = {float(std::exp((double(logits[i]) - double(*top)) / options_.temperature)), int32_t(i)};
  keep_likely();
  double sum = 0;
  for (const Candidate& c : candidates_) sum += double(c.probability);
  double target = double(to_uniform(philox(options_.seed, position)[0])) * sum;
  for (const Candidate& c : candidates_) {
    target -= double(c.probability);
    if (target < 0) return c.token;
  }
  return candidates_.front().token;
}

// Probabilities are relative to the most likely token's, which is 1.
void Sampler::keep_likely() {
  const bool needs_order = options_.top_k > 0 || options_.top_p < 1;
  if (options_.min_p > 0)
    std::erase_if(candidates_, [&](const Candidate& c) { return double(c.probability) < options_.min_p; });
  if (!needs_order) return;
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
  });
  if (options_.top_k > 0 && size_t(options_.top_k) < candidates_.size()) candidates_.resize(size_t(options_.top_k));
  if (options_.top_p >= 1) return;
  double total = 0, reached = 0;
  for (const Candidate& c : candidates_) total += double(c.probability);
  size_t kept = 0;
  while (kept < candidates_.size() && reached < options_.top_p * total)
    reached += double(candidates_[kept++].probability);
  candidates_.resize(std::max<size_t>(kept, 1));
}

}  // namespace weft
