// Sampler: changed logits, temperature, the filters, then one uniform number.
#include "weft/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/base/philox.h"

namespace weft {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr float kForbiddingBias = -100;  // as OpenAI's interface has it

void require(bool is_fine, std::string_view name, double value, std::string_view range) {
  if (!is_fine) throw UsageError("{} {}: write {}", name, value, range);
}

}  // namespace

void apply(const SamplingDefaults& defaults, SamplingOptions& options) {
  options.temperature = defaults.temperature.value_or(options.temperature);
  options.top_k = defaults.top_k.value_or(options.top_k);
  options.top_p = defaults.top_p.value_or(options.top_p);
  options.min_p = defaults.min_p.value_or(options.min_p);
  options.repetition_penalty = defaults.repetition_penalty.value_or(options.repetition_penalty);
}

void check_sampling(const SamplingOptions& o) {
  require(o.temperature >= 0 && o.temperature <= 100, "temperature", o.temperature,
          "a number from 0 (greedy) to 100");
  require(o.top_k >= 0, "top_k", double(o.top_k), "0 (off) or more");
  require(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "a number above 0, up to 1 (off)");
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "a number from 0 (off) to 1");
  require(o.typical_p > 0 && o.typical_p <= 1, "typical_p", o.typical_p, "a number above 0, up to 1 (off)");
  require(std::abs(o.presence_penalty) <= 2, "presence_penalty", o.presence_penalty, "a number from -2 to 2");
  require(std::abs(o.frequency_penalty) <= 2, "frequency_penalty", o.frequency_penalty, "a number from -2 to 2");
  require(o.repetition_penalty > 0 && o.repetition_penalty <= 100, "repetition_penalty", o.repetition_penalty,
          "a number above 0, up to 100; 1 is off");
  for (const auto& [token, bias] : o.logit_bias)
    require(std::abs(bias) <= 100, "logit_bias", double(bias), "numbers from -100 to 100");
}

bool Sampler::changes_logits(const SamplingPast& past) const {
  return !options_.logit_bias.empty() || !options_.allowed_tokens.empty() || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0 || options_.repetition_penalty != 1 || !past.allowed.empty() ||
         !past.banned.empty() || !past.bad_words.empty();
}

int32_t Sampler::choose(std::span<const float> logits, uint64_t position, const SamplingPast& past) {
  check(!logits.empty(), "there are no logits to choose from");
  if (changes_logits(past)) {
    change_logits(logits, past);
    logits = changed_;
  }
  const float top = highest(logits);
  if (top == kForbidden) throw Error("no token may come next: the request forbids all of them");
  if (options_.temperature == 0) return int32_t(std::find(logits.begin(), logits.end(), top) - logits.begin());
  const double total = weights_.weigh(logits, top, options_.temperature);
  const auto uniform = double(to_uniform(philox(options_.seed, position)[0]));
  if (keeps_all(logits.size())) return weights_.at(uniform * total);
  collect(total);
  if (options_.typical_p < 1) keep_typical();
  keep_likely(total);
  return draw(uniform);
}

bool Sampler::keeps_all(size_t tokens) const {
  return options_.typical_p >= 1 && options_.min_p <= 0 && options_.top_p >= 1 &&
         (options_.top_k == 0 || size_t(options_.top_k) >= tokens);
}

// All that have a weight; but where nothing else than top_p chooses, not those that are so unlikely that all of them
// together are not among the most likely ones that reach it: of a large vocabulary, most.
void Sampler::collect(double total) {
  const std::span<const float> weights = weights_.values();
  const bool is_top_p_alone = options_.typical_p >= 1 && options_.min_p <= 0 && options_.top_k == 0;
  constexpr double kMargin = 0.999;  // for the rounding of sums
  const auto lowest = float(is_top_p_alone ? kMargin * (1 - options_.top_p) * total / double(weights.size()) : 0);
  candidates_.clear();
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > lowest) candidates_.push_back({weights[i], int32_t(i)});
}

void Sampler::change_logits(std::span<const float> logits, const SamplingPast& past) {
  const auto has = [&](int32_t token) { return token >= 0 && size_t(token) < logits.size(); };
  if (options_.allowed_tokens.empty()) {
    changed_.assign(logits.begin(), logits.end());
  } else {
    changed_.assign(logits.size(), kForbidden);
    for (const int32_t token : options_.allowed_tokens)
      if (has(token)) changed_[size_t(token)] = logits[size_t(token)];
  }
  for (const auto& [token, bias] : options_.logit_bias) {
    if (has(token)) changed_[size_t(token)] = bias <= kForbiddingBias ? kForbidden : changed_[size_t(token)] + bias;
  }
  add_penalties(past);
  forbid(past);
}

void Sampler::add_penalties(const SamplingPast& past) {
  const bool repeats = options_.repetition_penalty != 1;
  if (!repeats && options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
  counts_.assign(changed_.size(), 0);
  for (const int32_t token : past.answer) ++counts_.at(size_t(token));
  in_prompt_.assign(changed_.size(), false);
  if (repeats) {
    for (const int32_t token : past.prompt) in_prompt_.at(size_t(token)) = true;
  }
  for (size_t i = 0; i < changed_.size(); ++i) {
    double logit = double(changed_[i]);
    if (repeats && (counts_[i] > 0 || in_prompt_[i]))
      logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    if (counts_[i] > 0) logit -= options_.presence_penalty + options_.frequency_penalty * counts_[i];
    changed_[i] = float(logit);
  }
}

void Sampler::forbid(const SamplingPast& past) {
  const auto forbid_token = [&](int32_t token) {
    if (token >= 0 && size_t(token) < changed_.size()) changed_[size_t(token)] = kForbidden;
  };
  if (!past.allowed.empty()) {
    check(past.allowed.size() * 32 >= changed_.size(), "{} words of allowed tokens for {} tokens",
          past.allowed.size(), changed_.size());
    for (size_t i = 0; i < changed_.size(); ++i) {
      if ((past.allowed[i / 32] >> (i % 32) & 1) == 0) changed_[i] = kForbidden;
    }
  }
  for (const int32_t token : past.banned) forbid_token(token);
  for (const std::vector<int32_t>& word : past.bad_words) {
    if (word.empty() || word.size() - 1 > past.answer.size()) continue;
    const auto before_last = past.answer.last(word.size() - 1);
    if (std::equal(before_last.begin(), before_last.end(), word.begin())) forbid_token(word.back());
  }
}

// Keeps the tokens whose surprise, -log p, is nearest to the mean one, until together they reach typical_p.
void Sampler::keep_typical() {
  double total = 0, mean = 0;
  for (const Candidate& c : candidates_) total += double(c.probability);
  for (const Candidate& c : candidates_) {
    const double p = double(c.probability) / total;
    mean -= p * std::log(p);
  }
  surprises_.clear();
  for (const Candidate& c : candidates_) {
    const double surprise = -std::log(double(c.probability) / total);
    surprises_.emplace_back(std::abs(surprise - mean), c);
  }
  std::sort(surprises_.begin(), surprises_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.token < b.second.token;
  });
  candidates_.clear();
  double reached = 0;
  for (const auto& [distance, candidate] : surprises_) {
    if (reached >= options_.typical_p * total) break;
    reached += double(candidate.probability);
    candidates_.push_back(candidate);
  }
}

void Sampler::keep_likely(double total) {
  const auto less_likely = [](const Candidate& a, const Candidate& b) {
    return a.probability != b.probability ? a.probability < b.probability : a.token > b.token;
  };
  if (options_.min_p > 0) {
    const double best = double(std::max_element(candidates_.begin(), candidates_.end(), less_likely)->probability);
    std::erase_if(candidates_, [&](const Candidate& c) { return double(c.probability) < options_.min_p * best; });
  }
  const auto more_likely = [&](const Candidate& a, const Candidate& b) { return less_likely(b, a); };
  if (options_.top_k > 0 && size_t(options_.top_k) < candidates_.size()) {
    const auto end = candidates_.begin() + options_.top_k;
    std::partial_sort(candidates_.begin(), end, candidates_.end(), more_likely);
    candidates_.erase(end, candidates_.end());
  }
  if (options_.top_p >= 1) return;
  double reached = 0;
  if (options_.typical_p < 1 || options_.min_p > 0 || options_.top_k > 0) {
    total = 0;
    for (const Candidate& c : candidates_) total += double(c.probability);
  }
  // Of a large vocabulary few tokens are kept, so that a heap is cheaper than order.
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  auto end = candidates_.end();
  while (end != candidates_.begin() && (end == candidates_.end() || reached < options_.top_p * total)) {
    std::pop_heap(candidates_.begin(), end, less_likely);
    reached += double((--end)->probability);
  }
  candidates_.erase(candidates_.begin(), end);
}

int32_t Sampler::draw(double uniform) const {
  double sum = 0;
  for (const Candidate& c : candidates_) sum += double(c.probability);
  double target = uniform * sum;
  for (const Candidate& c : candidates_) {
    target -= double(c.probability);
    if (target < 0) return c.token;
  }
  return candidates_.back().token;
}

}  // namespace weft
