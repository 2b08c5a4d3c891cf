// Parameters: the fields that all ways of asking for text share, read from JSON with their ranges.
#pragma once
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/serve/api/generation.h"

namespace weft::api {

// More than any of these is refused.
struct ApiLimits {
  int64_t n = 16;         // answers to a prompt
  int64_t choices = 128;  // of one request, over all prompts
  int64_t top_logprobs = 20;
  int64_t stops = 16, stop_bytes = 256;
  int64_t logit_biases = 1024;
  int64_t tools = 128;
  int64_t schema_bytes = 64 << 10;
  JsonLimits json{.max_bytes = 4 << 20, .max_depth = 64, .max_values = 1 << 20};
};

// temperature, top_p, top_k, min_p, typical_p, the penalties, logit_bias, allowed_token_ids, seed, stop,
// stop_token_ids, min_tokens, ignore_eos, bad_words, priority, user, n, stream, stream_options, response_format and
// its kin. Fields that nobody knows are ignored. The prompts and max_tokens are the caller's. `request` is the body's
// text. Throws Error naming the field.
void read_parameters(const JsonView& body, std::string_view request, const ApiLimits& limits, Plan& plan);

// A text or a list of them under `key`, into the plan's stop strings.
void read_stops(const JsonView& body, const char* key, const ApiLimits& limits, Plan& plan);

// Cuts the beginnings of prompts where truncate_prompt_tokens asks (vLLM's: how many tokens stay, or -1: as many as
// fit); refuses prompts that do not fit; cuts max_tokens to what the context leaves. field: where the prompts came
// from. asked: nullopt for all of it.
void fit_to_context(const JsonView& body, const char* field, std::optional<int64_t> asked, Plan& plan);

// prompt_logprobs, which excludes a stream. Behind read_parameters.
void read_prompt_logprobs(const JsonView& body, const ApiLimits& limits, Plan& plan);

// How an answer tells its tokens, as vLLM has it: return_token_ids, return_tokens_as_token_ids.
void read_told_tokens(const JsonView& body, Plan& plan);

// A list of tokens, or the one that `value` is.
std::vector<int32_t> read_tokens(const JsonView& value, int64_t vocab);

}  // namespace weft::api
