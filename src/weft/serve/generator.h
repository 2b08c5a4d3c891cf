// Generator: continues one prompt, a token at a time, with a key/value cache.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "weft/base/function_ref.h"
#include "weft/models/decoder.h"
#include "weft/serve/sampler.h"

namespace weft {

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling;
  std::optional<int32_t> stop_token;  // ends the text and is not passed on
};

class Generator {
 public:
  // The model must have its values; both outlive the generator.
  Generator(Context& context, Decoder& model) : context_(context), model_(model) {}

  // Calls on_token for every new token. Stops after max_tokens or at stop_token. When the model's context is full it
  // goes on from the newer half of what it saw.
  // Returns how many tokens were made. Throws UsageError when the prompt is empty or fills the context.
  int64_t generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                   FunctionRef<void(int32_t token)> on_token);

 private:
  // Runs tokens behind the cache; the last one's logits.
  std::span<const float> next_logits(std::span<const int32_t> tokens, KvCache& cache);

  Context& context_;
  Decoder& model_;
  std::vector<int32_t> positions_;
  Tensor logits_;  // [1, V] f32
};

}  // namespace weft
