// Log probabilities of tokens, as reported to clients: of the model's own distribution, before any sampling option.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace weft {

struct TokenLogProb {
  int32_t token = -1;
  float log_prob = 0;
};

// One position: the token that stands there and the most likely alternatives, the best first and of equals the one
// with the lower id. Where the token is among `top` it has the same float there.
struct TokenLogProbs {
  TokenLogProb token;  // id -1: nothing is known, as of a prompt's first token
  int64_t rank = 0;    // 1: no token is more likely
  std::span<const TokenLogProb> top;

  bool empty() const { return token.token < 0; }
};

// Works positions out; keeps its memory for the next.
class LogProbs {
 public:
  // `token` after `logits` [V], with `num_top` alternatives. Valid until the next call. log_sum: log_sum_exp of them.
  TokenLogProbs of(std::span<const float> logits, int32_t token, int32_t num_top, double log_sum);
  TokenLogProbs of(std::span<const float> logits, int32_t token, int32_t num_top);
  // Of a token alone, with this logit and so many likelier ones.
  static TokenLogProbs of(float logit, int32_t token, int64_t num_likelier, double log_sum) {
    return {.token = {token, log_prob(logit, log_sum)}, .rank = 1 + num_likelier};
  }
  // The same beside the one alternative, which has the highest logit.
  TokenLogProbs beside(TokenLogProbs own, int32_t likeliest, float highest, double log_sum) {
    order_.assign(1, {likeliest, log_prob(highest, log_sum)});
    own.top = order_;
    return own;
  }

 private:
  static float log_prob(float logit, double log_sum) { return float(double(logit) - log_sum); }

  std::vector<TokenLogProb> order_;
};

}  // namespace weft
