// Policy gradients: formulas.
#include "weft/train/policy/policy_gradient.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"

namespace weft {

PolicyConfig PolicyConfig::of(PolicyMethod method) {
  PolicyConfig c;
  c.method = method;
  if (method == PolicyMethod::dapo) c.clip_high = 0.28;
  if (method == PolicyMethod::gspo) c.clip_low = 3e-4, c.clip_high = 4e-4;
  return c;
}

Spread spread_of(std::span<const double> rewards) {
  const auto count = double(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
  return {mean, rewards.size() > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

bool are_alike(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [&](double r) { return r == rewards.front(); });
}

std::vector<double> advantages(const PolicyConfig& config, std::span<const double> rewards) {
  constexpr double kEpsilon = 1e-4;
  const auto group = size_t(config.answers);
  check(rewards.size() % group == 0, "{} answers in groups of {}", rewards.size(), group);
  std::vector<double> all(rewards.begin(), rewards.end());
  for (size_t begin = 0; begin < all.size(); begin += group) {
    const std::span<double> mine = std::span(all).subspan(begin, group);
    if (are_alike(mine)) {  // exactly, whatever a mean is rounded to
      std::ranges::fill(mine, 0);
      continue;
    }
    const Spread spread = spread_of(mine);
    const double divisor = config.divides_by_deviation() ? spread.deviation + kEpsilon : 1;
    for (double& a : mine) a = (a - spread.mean) / divisor;
  }
  return all;
}

double token_weight(const PolicyConfig& config, int64_t length, std::span<const int64_t> lengths) {
  if (length == 0) return 0;
  switch (config.method) {
    case PolicyMethod::dr_grpo: return 1 / double(config.max_tokens);
    case PolicyMethod::dapo:
      return double(lengths.size()) / double(std::accumulate(lengths.begin(), lengths.end(), int64_t(0)));
    default: return 1 / double(length);
  }
}

double log_ratio_of(std::span<const double> logps, std::span<const double> old_logps) {
  double sum = 0;
  for (size_t t = 0; t < old_logps.size(); ++t) sum += logps[t] - old_logps[t];
  return old_logps.empty() ? 0 : sum / double(old_logps.size());
}

PolicySums policy_loss(const PolicyConfig& config, const LearnedAnswer& answer, std::span<double> dlogps) {
  const size_t count = answer.logps.size();
  const double lowest = 1 - config.clip_low, highest = 1 + config.clip_high, a = answer.advantage;
  PolicySums sums{.tokens = double(count)};
  const double of_all = answer.log_ratio ? *answer.log_ratio : log_ratio_of(answer.logps, answer.old_logps);
  for (size_t t = 0; t < count; ++t) {
    const double moved = answer.old_logps.empty() ? 0 : answer.logps[t] - answer.old_logps[t];
    const double ratio = std::exp(config.has_one_ratio() ? of_all : moved);
    const double free = ratio * a, held = std::clamp(ratio, lowest, highest) * a;
    const bool is_clipped = held < free;
    double loss = -std::min(free, held), slope = is_clipped ? 0 : -free;
    if (!answer.reference.empty()) {
      const double d = answer.reference[t] - answer.logps[t];
      loss += config.beta * (std::expm1(d) - d), slope -= config.beta * std::expm1(d);
      sums.divergence += std::expm1(d) - d;
    }
    sums.loss += answer.weight * loss, sums.clipped += is_clipped;
    if (!dlogps.empty()) dlogps[t] = answer.weight * slope;
  }
  return sums;
}

}  // namespace weft
