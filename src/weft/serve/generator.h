// Generator: continues one prompt, a token at a time, with a key/value cache.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/pretrained/forward_model.h"
#include "weft/serve/logit_rows.h"

namespace weft {

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::vector<int32_t> stop_tokens;  // each ends the text and is not passed on
};

class Generator {
 public:
  // The model outlives the generator. Every rank of its mesh has one and makes the same calls.
  explicit Generator(ForwardModel& model) : model_(model) {}

  // Calls on_token for every new token, on every rank. Stops after max_tokens or at a stop token. When the model's
  // context is full it goes on from the newer half of what it saw. Returns how many tokens were made. Throws
  // UsageError when the prompt is empty or fills the context.
  int64_t generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                   FunctionRef<void(int32_t token)> on_token);

 private:
  // Runs tokens behind the cache and chooses the one that follows.
  int32_t next(std::span<const int32_t> tokens, KvCache& cache, Sampler& sampler, const SamplingPast& past);

  ForwardModel& model_;
  std::vector<int32_t> positions_;
  LogitRows rows_;
};

}  // namespace weft
