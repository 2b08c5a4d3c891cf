// check_choice: names what leaves no token to come next.
#include "weft/serve/sequence.h"

#include <fmt/ranges.h>

namespace weft {
namespace {

bool is_none(std::span<const uint32_t> allowed) {
  return std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; });
}

// Of its keys those that forbid tokens.
std::vector<std::string_view> forbidding_keys(const SamplingOptions& sampling, const SamplingPast& past) {
  std::vector<std::string_view> keys;
  const bool has_bias =
      std::ranges::any_of(sampling.logit_bias, [](const auto& one) { return one.second <= kForbiddingBias; });
  if (has_bias) keys.emplace_back("logit_bias");
  if (!past.bad_words.empty()) keys.emplace_back("bad_words");
  if (!sampling.allowed_tokens.empty()) keys.emplace_back("allowed_token_ids");
  if (!past.banned.empty()) keys.emplace_back("min_tokens");
  return keys;
}

}  // namespace

void check_choice(Sampler& sampler, const Request& request, const SamplingPast& past, int64_t vocab) {
  if (sampler.may_choose(past, vocab)) return;
  const std::string said = request.constraint ? request.constraint->said() : std::string();
  const std::string where = said.empty() ? std::string() : fmt::format(" after \"{}\"", said);
  if (!past.allowed.empty() && is_none(past.allowed))
    throw UsageError(
        "the form of the output allows nothing{} that this model's vocabulary can spell: change the form", where);
  const std::vector<std::string_view> keys = forbidding_keys(sampler.options(), past);
  throw UsageError("{} forbid{} every token {}: allow one", fmt::join(keys, " and "), keys.size() == 1 ? "s" : "",
                   past.allowed.empty() ? "that could come next" : fmt::format("that the form allows{}", where));
}

void check_outputs(const Request& request, const EngineLimits& limits) {
  const bool writes = limits.writes_texts(), generates = request.kind == Request::Kind::generate;
  if (!writes && generates)
    throw Unsupported("this model {} texts and writes none: ask {}",
                      limits.labels > 0 ? "scores" : "makes vectors of",
                      limits.labels > 0 ? "/classify, /v1/score or /v1/rerank" : "/v1/embeddings or /v1/rerank");
  for (const int32_t output : request.weighed)
    if (output < 0 || output >= (writes ? limits.vocab : limits.labels))
      throw UsageError("{} is no {} of this model", output, writes ? "token" : "label");
  if (!generates || request.max_tokens == 0) return;
  std::vector<uint32_t> allowed;
  Sampler sampler(request.sampling);
  check_choice(sampler, request, past_of(request, {}, {}, limits.vocab, allowed), limits.vocab);
}

}  // namespace weft
