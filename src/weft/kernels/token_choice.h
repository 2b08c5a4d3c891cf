// What is asked of rows of logits by those who choose tokens, so that the token is all that the host reads of them,
// in place of a whole vocabulary. See Kernels::find_tokens.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/tensor/stream.h"
#include "weft/tensor/tensor.h"

namespace weft {

// The token, and what happens to its logit: see TokenQuery.
struct TokenChange {
  int32_t token;  // of no column: nothing happens
  float amount = 0;
};

// Which of the likeliest tokens are kept before one is drawn; see SamplingOptions (serve/sampler.h).
struct LikelyTokens {
  int64_t top_k = 0;  // 0: all
  double top_p = 1, min_p = 0;
};

// Of one row. First its logits change, in place, in this order: biases are added, of which one of -100 or less
// forbids the token; logits of penalised tokens, which an answer has `amount` times, are divided by
// repetition_penalty where they are positive, else multiplied with it, and where `amount` is not 0 presence_penalty
// and frequency_penalty times it are taken off, all in double; what is forbidden, and what the mask does not have,
// becomes -infinity. None has two biases or penalties.
struct TokenQuery {
  enum class Want : int32_t {
    likeliest,        // the first token with the highest logit
    drawn,            // one of all, each as likely as its weight says: that in which `uniform` of their sum lies
    drawn_of_likely,  // one of those that `kept` keeps, see draw_of_likely
    given             // `given`, of a row without changes
  };
  Want want = Want::likeliest;
  int32_t row = 0;  // of the logits; of several queries different ones
  int32_t first_change = 0, num_biases = 0, num_penalised = 0, num_forbidden = 0;
  int32_t mask = -1;  // its number among masks; -1: none
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  float inverse_temperature = 1;  // token_weighing::inverse_of
  float uniform = 0;
  LikelyTokens kept;
  int32_t given = -1;
  bool wants_log_sum = false;  // of a row without changes: the fields of FoundTokens that say so

  int64_t num_changes() const { return int64_t(num_biases) + num_penalised + num_forbidden; }
  bool changes_logits() const { return num_changes() > 0 || mask >= 0; }
  bool is_drawn() const { return want == Want::drawn || want == Want::drawn_of_likely; }
};

// A token's weight is exp((its logit - the highest) / temperature): TokenWeights gives the same bits.
struct FoundTokens {
  double total = 0;              // the sum of all weights; 0 of the likeliest alone
  double total_at_one = 0;       // at temperature 1, with wants_log_sum: highest + log of it is the log-sum-exp
  float highest = 0;             // logit
  float logit = 0;               // of `token`
  int32_t token = kNoToken;      // that is wanted, or one of the following
  int32_t num_likelier = 0;      // tokens with a higher logit, with wants_log_sum
  int32_t num_candidates = 0;    // for `kept`, so that nothing that it keeps is left out
  int32_t likeliest = kNoToken;  // the first token with the highest logit

  static constexpr int32_t kNoToken = -1;     // none may come
  static constexpr int32_t kManyTokens = -2;  // more than kMostCandidates are candidates
  static constexpr int32_t kMostCandidates = 512;
};
inline constexpr float kForbiddingBias = -100;  // as OpenAI's interface has it

struct FindTokensArgs {
  Tensor found;                           // out [queries, bytes of FoundTokens] u8
  Tensor logits;                          // [T, V] f32
  int64_t vocab = 0;                      // the first columns, which are tokens
  std::span<const TokenQuery> queries{};  // these three in host memory
  std::span<const TokenChange> changes{};
  std::span<const uint32_t> masks{};  // [masks, vocab / 32 rounded up]: a bit to each token that may come

  int64_t mask_words() const { return (vocab + 31) / 32; }
  std::span<const TokenChange> changes_of(const TokenQuery& q) const {
    return changes.subspan(size_t(q.first_change), size_t(q.num_changes()));
  }
  std::span<const uint32_t> mask_of(const TokenQuery& q) const {
    if (q.mask < 0) return {};
    return masks.subspan(size_t(q.mask * mask_words()), size_t(mask_words()));
  }
};

// The changes of one query, which are all of `changes`, and its mask, if it has one.
void change_logits(std::span<float> logits, const TokenQuery& query, std::span<const TokenChange> changes,
                   std::span<const uint32_t> mask);

// A weight beside that of the likeliest token, which is 1.
struct WeighedToken {
  float weight;
  int32_t token;
};
// Of tokens, by default in the order of their ids, which get another one: keeps those that have at least min_p of the
// highest weight; of them the top_k likeliest, the first of equals, most likely first; of these the most likely ones
// that together reach top_p of `total` or, where there is none or something else was kept before, of the sum of all
// that are left, least likely first. Draws that in which `uniform` of the sum of those that are kept lies, the last
// where rounding leaves none. Sums are in double, one by one in the order of the tokens.
int32_t draw_of_likely(std::vector<WeighedToken>& tokens, const LikelyTokens& kept, std::optional<double> total,
                       double uniform);

// For tables whose tensors are memory of the host.
void find_tokens_on_host(Stream& stream, const FindTokensArgs& args);
void place_tokens_on_host(Stream& stream, const Tensor& ids, const int32_t* said, const Tensor& found);

}  // namespace weft
