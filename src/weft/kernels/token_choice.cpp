// find_tokens on the host: one row after the other, with all candidates that have enough weight by themselves.
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
float least_weight(const TokenQuery& q, std::span<const float> weights, double total) {
  const bool is_top_p_alone = q.top_k == 0 && q.min_p <= 0;
  float least = float(q.min_p);
  if (q.top_k == 0 && !is_top_p_alone) return least;
  std::vector<float> order(weights.begin(), weights.end());
  std::ranges::sort(order, std::greater<>());
  size_t count = 0;
  double reached = 0;
  const auto goes_on = [&] { return is_top_p_alone ? reached < q.top_p * total : int64_t(count) < q.top_k; };
  while (count < order.size() && goes_on()) reached += double(order[count++]);
  return count > 0 ? std::max(least, order[count - 1]) : least;
}

}  // namespace

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
  for (size_t i = 0; i < args.queries.size(); ++i) {
    const TokenQuery& q = args.queries[i];
    const std::span logits(args.logits.data<float>() + q.row * args.logits.dim(1), size_t(args.vocab));
    change_logits(logits, q, args.changes_of(q), args.mask_of(q));
    FoundTokens found{.highest = highest(logits)};
    const auto choose = [&](size_t token) { found.token = int32_t(token), found.logit = logits[token]; };
    if (found.highest != kForbidden) choose(size_t(std::ranges::find(logits, found.highest) - logits.begin()));
    if (q.wants_log_sum) found.total_at_one = weights.weigh(logits, found.highest, 1);
    if (found.token >= 0 && q.want != TokenQuery::Want::likeliest) {
      found.total = weights.weigh_times(logits, found.highest, q.inverse_temperature);
      if (q.want == TokenQuery::Want::drawn) choose(size_t(weights.at(double(q.uniform) * found.total)));
    }
    if (q.wants_log_sum)
      found.num_likelier = int32_t(std::ranges::count_if(logits, [&](float x) { return x > found.logit; }));
    if (found.token >= 0 && q.want == TokenQuery::Want::candidates) {
      auto* const to =
          reinterpret_cast<TokenCandidate*>(args.candidates.data<uint8_t>()) + int64_t(i) * kMostTokenCandidates;
      const float least = least_weight(q, weights.values(), found.total);
      for (size_t token = 0; token < logits.size(); ++token) {
        const float weight = weights.values()[token];
        if (weight <= 0 || weight < least) continue;
        if (found.num_candidates < kMostTokenCandidates) to[found.num_candidates] = {logits[token], int32_t(token)};
        ++found.num_candidates;
      }
    }
    reinterpret_cast<FoundTokens*>(args.found.data<uint8_t>())[i] = found;
  }
}

}  // namespace weft
