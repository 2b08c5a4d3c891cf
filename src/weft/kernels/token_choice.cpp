// find_tokens on the host: one row after the other.
#include "weft/kernels/token_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "weft/kernels/shape_checks.h"
#include "weft/kernels/token_weight.h"
#include "weft/kernels/token_weights.h"

namespace weft {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// The least weight that top_k, or top_p where nothing else keeps few, or min_p can keep.
float least_weight(const LikelyTokens& kept, std::span<const float> weights, double total) {
  const bool is_top_p_alone = kept.top_k == 0 && kept.min_p <= 0;
  float least = float(kept.min_p);
  if (kept.top_k == 0 && !is_top_p_alone) return least;
  std::vector<float> order(weights.begin(), weights.end());
  std::ranges::sort(order, std::greater<>());
  size_t count = 0;
  double reached = 0;
  const auto goes_on = [&] { return is_top_p_alone ? reached < kept.top_p * total : int64_t(count) < kept.top_k; };
  while (count < order.size() && goes_on()) reached += double(order[count++]);
  return count > 0 ? std::max(least, order[count - 1]) : least;
}

bool is_less_likely(const WeighedToken& a, const WeighedToken& b) {
  return a.weight != b.weight ? a.weight < b.weight : a.token > b.token;
}

double sum_of(std::span<const WeighedToken> tokens) {
  double sum = 0;
  for (const WeighedToken& t : tokens) sum += double(t.weight);
  return sum;
}

void keep_likely(std::vector<WeighedToken>& tokens, const LikelyTokens& kept, std::optional<double> total) {
  if (kept.min_p > 0) {
    const double best = double(std::max_element(tokens.begin(), tokens.end(), is_less_likely)->weight);
    std::erase_if(tokens, [&](const WeighedToken& t) { return double(t.weight) < kept.min_p * best; });
  }
  if (kept.top_k > 0 && size_t(kept.top_k) <= tokens.size()) {
    const auto end = tokens.begin() + kept.top_k;
    std::partial_sort(tokens.begin(), end, tokens.end(),
                      [](const WeighedToken& a, const WeighedToken& b) { return is_less_likely(b, a); });
    tokens.erase(end, tokens.end());
  }
  if (kept.top_p >= 1) return;
  const double whole = total && kept.min_p <= 0 && kept.top_k == 0 ? *total : sum_of(tokens);
  // Of a large vocabulary few tokens are kept, so that a heap is cheaper than order.
  std::make_heap(tokens.begin(), tokens.end(), is_less_likely);
  auto end = tokens.end();
  double reached = 0;
  while (end != tokens.begin() && (end == tokens.end() || reached < kept.top_p * whole)) {
    std::pop_heap(tokens.begin(), end, is_less_likely);
    reached += double((--end)->weight);
  }
  tokens.erase(tokens.begin(), end);
}

}  // namespace

int32_t draw_of_likely(std::vector<WeighedToken>& tokens, const LikelyTokens& kept, std::optional<double> total,
                       double uniform) {
  keep_likely(tokens, kept, total);
  double target = uniform * sum_of(tokens);
  for (const WeighedToken& t : tokens) {
    target -= double(t.weight);
    if (target < 0) return t.token;
  }
  return tokens.back().token;
}

void change_logits(std::span<float> logits, const TokenQuery& q, std::span<const TokenChange> changes,
                   std::span<const uint32_t> mask) {
  const auto each = [&](int32_t count, auto&& put) {
    for (const TokenChange& c : changes.first(size_t(count)))
      if (c.token >= 0 && size_t(c.token) < logits.size()) put(logits[size_t(c.token)], c.amount);
    changes = changes.subspan(size_t(count));
  };
  each(q.num_biases, [](float& x, float bias) { x = bias <= kForbiddingBias ? kForbidden : x + bias; });
  each(q.num_penalised, [&](float& x, float count) {
    const double repeated = x > 0 ? double(x) / q.repetition_penalty : double(x) * q.repetition_penalty;
    x = float(count > 0 ? repeated - (q.presence_penalty + q.frequency_penalty * double(count)) : repeated);
  });
  each(q.num_forbidden, [](float& x, float) { x = kForbidden; });
  for (size_t i = 0; !mask.empty() && i < logits.size(); ++i)
    if ((mask[i / 32] >> (i % 32) & 1) == 0) logits[i] = kForbidden;
}

void find_tokens_on_host(Stream&, const FindTokensArgs& args) {
  shapes::check_find_tokens(args);
  TokenWeights weights;
  std::vector<WeighedToken> candidates;
  for (size_t i = 0; i < args.queries.size(); ++i) {
    const TokenQuery& q = args.queries[i];
    const std::span logits(args.logits.data<float>() + q.row * args.logits.dim(1), size_t(args.vocab));
    change_logits(logits, q, args.changes_of(q), args.mask_of(q));
    FoundTokens found{.highest = highest(logits)};
    const auto choose = [&](size_t token) { found.token = int32_t(token), found.logit = logits[token]; };
    if (found.highest != kForbidden) choose(size_t(std::ranges::find(logits, found.highest) - logits.begin()));
    found.likeliest = found.token;
    if (q.want == TokenQuery::Want::given) choose(size_t(q.given));
    if (q.wants_log_sum) found.total_at_one = weights.weigh(logits, found.highest, 1);
    if (found.token >= 0 && q.is_drawn()) {
      found.total = weights.weigh_times(logits, found.highest, q.inverse_temperature);
      if (q.want == TokenQuery::Want::drawn) choose(size_t(weights.at(double(q.uniform) * found.total)));
    }
    if (found.token >= 0 && q.want == TokenQuery::Want::drawn_of_likely) {
      candidates.clear();
      const float least = least_weight(q.kept, weights.values(), found.total);
      for (size_t token = 0; token < logits.size(); ++token)
        if (const float weight = weights.values()[token]; weight > 0 && weight >= least)
          candidates.push_back({weight, int32_t(token)});
      found.num_candidates = int32_t(candidates.size());
      if (found.num_candidates > FoundTokens::kMostCandidates)
        found.token = FoundTokens::kManyTokens;
      else
        choose(size_t(draw_of_likely(candidates, q.kept, found.total, double(q.uniform))));
    }
    if (q.wants_log_sum)
      found.num_likelier = int32_t(std::ranges::count_if(logits, [&](float x) { return x > found.logit; }));
    reinterpret_cast<FoundTokens*>(args.found.data<uint8_t>())[i] = found;
  }
}

void place_tokens_on_host(Stream&, const Tensor& ids, const int32_t* said, const Tensor& found) {
  shapes::check_place_tokens(ids, said, found);
  const auto* const all = reinterpret_cast<const FoundTokens*>(found.data<uint8_t>());
  for (int64_t t = 0; t < ids.numel(); ++t) ids.data<int32_t>()[t] = said[t] >= 0 ? said[t] : all[-1 - said[t]].token;
}

}  // namespace weft
