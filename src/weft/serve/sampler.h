// Sampler: chooses the next token from logits; a pure function of the options, the position and what came before, so
// that a request can be replayed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/kernels/token_choice.h"
#include "weft/kernels/token_weights.h"
#include "weft/pretrained/sampling_defaults.h"
#include "weft/serve/past_tokens.h"

namespace weft {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // keep the k most likely tokens; 0: all
  double top_p = 1;          // keep the most likely tokens that together reach p (Holtzman et al., 2020)
  double min_p = 0;          // keep tokens at least min_p times as likely as the most likely one
  double typical_p = 1;      // keep the tokens nearest to the expected surprise that reach p (Meister et al., 2023)
  uint64_t seed = 0;
  double presence_penalty = 0;   // off the logit of each token that the answer has
  double frequency_penalty = 0;  // off it for every time the answer has it
  double repetition_penalty =
      1;  // divides positive logits of tokens seen, multiplies negative ones (Keskar et al., 2019)
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits of these tokens; -100 and less forbids
  std::vector<int32_t> allowed_tokens;                // where there are any, no others may come
};

// Sets what the model's files say.
void apply(const SamplingDefaults& defaults, SamplingOptions& options);
// An option that is out of range.
class SamplingError : public UsageError {
 public:
  SamplingError(std::string_view option, std::string message) : UsageError(std::move(message)), option_(option) {}
  const std::string& option() const { return option_; }

 private:
  std::string option_;
};

// Throws SamplingError, whose message names the option.
void check_sampling(const SamplingOptions& options);

// What a choice depends on beside the logits. All of it may be left out.
struct SamplingPast {
  std::span<const int32_t> prompt{}, answer{};  // so far
  std::span<const uint32_t> allowed{};          // a bit for each token, as TokenConstraint fills it; empty: all
  std::span<const int32_t> ends{};    // those of `allowed` come after all where it has no others: banned or not
  std::span<const int32_t> banned{};  // tokens that may not come now
  std::span<const std::vector<int32_t>> bad_words{};  // sequences that may not come to their end now
};

// All logits are -infinity, of themselves or since the request forbids those tokens.
class NoTokenMayCome : public Error {
 public:
  NoTokenMayCome() : Error("no token may come next: the logits of all are -infinity") {}
};

// What a choice needs of a row of logits that lies elsewhere: see Kernels::find_tokens.
struct TokenWish {
  TokenQuery query;                  // but for the row, the first change and the mask's number
  std::vector<TokenChange> changes;  // as the query counts them
  std::vector<uint32_t> mask;        // empty: none
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);

  // Whether a token may come, whatever the logits.
  bool may_choose(const SamplingPast& past, int64_t vocab);
  // `position` numbers the tokens of one sequence. Ties go to the lower token id. Throws NoTokenMayCome. In this
  // order: allowed tokens, bias, penalties, what is forbidden; then temperature, typical_p, min_p, top_k, top_p.
  int32_t choose(std::span<const float> logits, uint64_t position, const SamplingPast& past = {});

  // What finds the same in the row, of `vocab` tokens, where it lies. False where only the whole row tells.
  bool wish(uint64_t position, const SamplingPast& past, int64_t vocab, TokenWish& wish);
  // What was found. Throws NoTokenMayCome.
  static int32_t choose(const FoundTokens& found);
  // And from a row that was changed as the wish says.
  int32_t choose_changed(std::span<const float> logits, uint64_t position);

  const SamplingOptions& options() const { return options_; }

 private:
  bool changes_logits(const SamplingPast& past) const;
  void find_changes(const SamplingPast& past, int64_t vocab, TokenWish& wish);
  bool find_mask(const SamplingPast& past, int64_t vocab, std::vector<uint32_t>& mask) const;
  void add_penalties(const SamplingPast& past, TokenWish& wish);
  bool keeps_all(int64_t tokens) const;
  LikelyTokens kept() const { return {options_.top_k, options_.top_p, options_.min_p}; }
  void collect(double total);
  void keep_typical();
  float uniform_of(uint64_t position) const;

  SamplingOptions options_;
  PastTokens past_;
  // Kept for the next call.
  TokenWish wish_;
  std::vector<float> changed_;
  TokenWeights weights_;
  std::vector<WeighedToken> candidates_;
  std::vector<std::pair<double, WeighedToken>> surprises_;
};

}  // namespace weft
