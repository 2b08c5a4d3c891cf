// Sampler: changed logits, temperature, the filters, then one uniform number.
#include "weft/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/philox.h"
#include "weft/kernels/token_weight.h"

namespace weft {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

bool has_bit(std::span<const uint32_t> mask, int32_t token) {
  return token >= 0 && size_t(token) / 32 < mask.size() && (mask[size_t(token) / 32] >> (token % 32) & 1) != 0;
}

void clear_bit(std::span<uint32_t> mask, int32_t token) {
  if (has_bit(mask, token)) mask[size_t(token) / 32] &= ~(uint32_t(1) << (token % 32));
}

void require(bool is_fine, std::string_view name, double value, std::string_view range) {
  if (!is_fine) throw SamplingError(name, fmt::format("{} {}: write {}", name, value, range));
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

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  auto& biases = options_.logit_bias;
  std::ranges::stable_sort(biases, {}, &std::pair<int32_t, float>::first);
  size_t count = 0;
  for (const auto& [token, bias] : biases) {
    if (count > 0 && biases[count - 1].first == token)
      biases[count - 1].second += bias;
    else
      biases[count++] = {token, bias};
  }
  biases.resize(count);
}

bool Sampler::changes_logits(const SamplingPast& past) const {
  return !options_.logit_bias.empty() || !options_.allowed_tokens.empty() || options_.presence_penalty != 0 ||
         options_.frequency_penalty != 0 || options_.repetition_penalty != 1 || !past.allowed.empty() ||
         !past.banned.empty() || !past.bad_words.empty();
}

// A wish's changes; its query counts them.
void Sampler::find_changes(const SamplingPast& past, int64_t vocab, TokenWish& wish) {
  wish.changes.clear(), wish.mask.clear();
  if (!changes_logits(past)) return;
  auto end_list = [&, before = size_t(0)](int32_t& count) mutable {
    count = int32_t(wish.changes.size() - before), before = wish.changes.size();
  };
  for (const auto& [token, bias] : options_.logit_bias) wish.changes.push_back({token, bias});
  end_list(wish.query.num_biases);
  add_penalties(past, wish);
  end_list(wish.query.num_penalised);
  if (find_mask(past, vocab, wish.mask))
    for (const int32_t token : past.banned) wish.changes.push_back({token});
  for (const std::vector<int32_t>& word : past.bad_words) {
    if (word.empty() || word.size() - 1 > past.answer.size()) continue;
    const auto before_last = past.answer.last(word.size() - 1);
    if (std::equal(before_last.begin(), before_last.end(), word.begin())) wish.changes.push_back({word.back()});
  }
  end_list(wish.query.num_forbidden);
}

// False where nothing but the ends is left of a form: they are the mask then, and nothing is banned.
bool Sampler::find_mask(const SamplingPast& past, int64_t vocab, std::vector<uint32_t>& mask) const {
  const auto words = size_t(vocab + 31) / 32;
  if (!past.allowed.empty()) {
    check(past.allowed.size() >= words, "{} words of allowed tokens for {} tokens", past.allowed.size(), vocab);
    mask.assign(past.allowed.begin(), past.allowed.begin() + std::ptrdiff_t(words));
  }
  if (!options_.allowed_tokens.empty()) {
    std::vector<uint32_t> allowed(words);
    for (const int32_t token : options_.allowed_tokens)
      if (token >= 0 && token < vocab && (mask.empty() || has_bit(mask, token)))
        allowed[size_t(token) / 32] |= uint32_t(1) << (token % 32);
    mask.swap(allowed);
  }
  if (past.ends.empty() || (past.banned.empty() && options_.allowed_tokens.empty())) return true;
  std::vector<uint32_t> rest = mask;
  for (const int32_t token : past.banned) clear_bit(rest, token);
  if (std::ranges::any_of(rest, [](uint32_t word) { return word != 0; })) return true;
  std::ranges::fill(mask, 0u);
  for (const int32_t token : past.ends)
    if (token < vocab && has_bit(past.allowed, token)) mask[size_t(token) / 32] |= uint32_t(1) << (token % 32);
  return false;
}

bool Sampler::may_choose(const SamplingPast& past, int64_t vocab) {
  if (!changes_logits(past)) return true;
  wish_.query = {};
  find_changes(past, vocab, wish_);
  std::vector<uint32_t> mask = wish_.mask;
  if (mask.empty()) mask.assign(size_t(vocab + 31) / 32, ~uint32_t(0));
  for (int64_t token = vocab; token < int64_t(mask.size()) * 32; ++token) clear_bit(mask, int32_t(token));
  const std::span<const TokenChange> changes = wish_.changes;
  for (const TokenChange& bias : changes.first(size_t(wish_.query.num_biases)))
    if (bias.amount <= kForbiddingBias) clear_bit(mask, bias.token);
  for (const TokenChange& forbidden : changes.last(size_t(wish_.query.num_forbidden)))
    clear_bit(mask, forbidden.token);
  return std::ranges::any_of(mask, [](uint32_t word) { return word != 0; });
}

void Sampler::add_penalties(const SamplingPast& past, TokenWish& wish) {
  const bool repeats = options_.repetition_penalty != 1;
  if (!repeats && options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
  wish.query.repetition_penalty = options_.repetition_penalty;
  wish.query.presence_penalty = options_.presence_penalty, wish.query.frequency_penalty = options_.frequency_penalty;
  past_.follow(past.prompt, past.answer);
  for (const PastTokens::Entry& e : past_.entries())
    if (e.in_answer > 0 || (repeats && e.in_prompt)) wish.changes.push_back({e.token, float(e.in_answer)});
}

float Sampler::uniform_of(uint64_t position) const { return to_uniform(philox(options_.seed, position)[0]); }

bool Sampler::wish(uint64_t position, const SamplingPast& past, int64_t vocab, TokenWish& wish) {
  const bool is_greedy = options_.temperature == 0;
  if (!is_greedy && (options_.typical_p < 1 || options_.top_k > FoundTokens::kMostCandidates)) return false;
  wish.query = {};
  find_changes(past, vocab, wish);
  if (is_greedy) return true;
  wish.query.inverse_temperature = token_weighing::inverse_of(options_.temperature);
  wish.query.uniform = uniform_of(position);
  wish.query.want = keeps_all(vocab) ? TokenQuery::Want::drawn : TokenQuery::Want::drawn_of_likely;
  wish.query.kept = kept();
  return true;
}

int32_t Sampler::choose(const FoundTokens& found) {
  check(found.token != FoundTokens::kManyTokens, "there are too many tokens to choose from");
  if (found.token < 0) throw NoTokenMayCome();
  return found.token;
}

int32_t Sampler::choose(std::span<const float> logits, uint64_t position, const SamplingPast& past) {
  check(!logits.empty(), "there are no logits to choose from");
  if (!changes_logits(past)) return choose_changed(logits, position);
  wish_.query = {};
  find_changes(past, int64_t(logits.size()), wish_);
  changed_.assign(logits.begin(), logits.end());
  weft::change_logits(changed_, wish_.query, wish_.changes, wish_.mask);
  return choose_changed(changed_, position);
}

int32_t Sampler::choose_changed(std::span<const float> logits, uint64_t position) {
  const float top = highest(logits);
  if (top == kForbidden) throw NoTokenMayCome();
  if (options_.temperature == 0) return int32_t(std::find(logits.begin(), logits.end(), top) - logits.begin());
  const double total = weights_.weigh(logits, top, options_.temperature);
  const auto uniform = double(uniform_of(position));
  if (keeps_all(int64_t(logits.size()))) return weights_.at(uniform * total);
  collect(total);
  if (options_.typical_p < 1) keep_typical();
  const bool is_of_all = options_.typical_p >= 1;
  return draw_of_likely(candidates_, kept(), is_of_all ? std::optional(total) : std::nullopt, uniform);
}

bool Sampler::keeps_all(int64_t tokens) const {
  return options_.typical_p >= 1 && options_.min_p <= 0 && options_.top_p >= 1 &&
         (options_.top_k == 0 || options_.top_k >= tokens);
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

// Keeps the tokens whose surprise, -log p, is nearest to the mean one, until together they reach typical_p.
void Sampler::keep_typical() {
  double total = 0, mean = 0;
  for (const WeighedToken& c : candidates_) total += double(c.weight);
  for (const WeighedToken& c : candidates_) {
    const double p = double(c.weight) / total;
    mean -= p * std::log(p);
  }
  surprises_.clear();
  for (const WeighedToken& c : candidates_) {
    const double surprise = -std::log(double(c.weight) / total);
    surprises_.emplace_back(std::abs(surprise - mean), c);
  }
  std::sort(surprises_.begin(), surprises_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.token < b.second.token;
  });
  candidates_.clear();
  double reached = 0;
  for (const auto& [distance, candidate] : surprises_) {
    if (reached >= options_.typical_p * total) break;
    reached += double(candidate.weight);
    candidates_.push_back(candidate);
  }
}

}  // namespace weft
