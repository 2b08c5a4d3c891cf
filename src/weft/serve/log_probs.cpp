// LogProbs: a log-softmax, rounded once.
#include "weft/serve/log_probs.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/kernels/token_weights.h"

namespace weft {

TokenLogProbs LogProbs::of(std::span<const float> logits, int32_t token, int32_t num_top) {
  return of(logits, token, num_top, log_sum_exp(logits));
}

TokenLogProbs LogProbs::of(std::span<const float> logits, int32_t token, int32_t num_top, double log_sum) {
  check(token >= 0 && size_t(token) < logits.size(), "token {} is outside the {} logits", token, logits.size());
  const float own = logits[size_t(token)];
  int32_t likelier = 0;
  for (const float logit : logits) likelier += logit > own;
  TokenLogProbs result = of(own, token, likelier, log_sum);
  const size_t kept = std::min(logits.size(), size_t(std::max(num_top, 0)));
  if (kept == 0) return result;
  order_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) order_[i] = {int32_t(i), logits[i]};
  std::partial_sort(order_.begin(), order_.begin() + std::ptrdiff_t(kept), order_.end(),
                    [](const TokenLogProb& a, const TokenLogProb& b) {
                      return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.token < b.token;
                    });
  for (TokenLogProb& entry : std::span(order_).first(kept)) entry.log_prob = log_prob(entry.log_prob, log_sum);
  result.top = std::span(order_).first(kept);
  return result;
}

}  // namespace weft
