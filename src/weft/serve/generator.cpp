// Generator: prefill, then decode.
#include "weft/serve/generator.h"

#include <algorithm>

#include "weft/tensor/repeated_step.h"

namespace weft {

int32_t Generator::next(std::span<const int32_t> tokens, KvCache& cache, Sampler& sampler, const SamplingPast& past) {
  positions_.resize(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) positions_[i] = int32_t(cache.length() + int64_t(i));
  const Pass pass{.ids = tokens.data(),
                  .num_tokens = int64_t(tokens.size()),
                  .attention = {.positions = positions_.data(), .cache = &cache}};
  Stream& stream = model_.context().stream;
  const auto compute = [&] {
    const RepeatedStep step(stream, this, pass.num_tokens == 1 ? 1 : 0);
    return model_.logits(pass, pass.num_tokens - 1, 1);
  };
  const Tensor logits = compute();
  if (!logits) return model_.share(0);
  const uint64_t position = past.prompt.size() + past.answer.size();
  rows_.begin(logits, model_.config().vocab);
  rows_.wish_choice(0, sampler, position, past, false);
  rows_.find(model_.context());
  rows_.read(model_.context());
  return model_.share(rows_.choose(0, sampler, position, past));
}

int64_t Generator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                            FunctionRef<void(int32_t)> on_token) {
  const ModelConfig& c = model_.config();
  if (prompt.empty()) throw UsageError("the prompt is empty: give at least one token with --prompt or --prompt-file");
  if (int64_t(prompt.size()) >= c.context)
    throw UsageError("the prompt has {} tokens and the model's context is {}: shorten the prompt", prompt.size(),
                     c.context);
  const int64_t capacity = std::min(c.context, int64_t(prompt.size()) + options.max_tokens);
  KvCache cache(model_.context(), int(c.layers), capacity);
  Sampler sampler(options.sampling);
  std::vector<int32_t> seen(prompt.begin(), prompt.end());
  size_t first_new = 0;  // of `seen`: what the cache does not hold yet
  int64_t made = 0;
  for (; made < options.max_tokens; ++made) {
    if (cache.length() + int64_t(seen.size() - first_new) > capacity) {
      cache.clear();
      first_new = seen.size() - size_t(std::max<int64_t>(1, capacity / 2));
    }
    const std::span<const int32_t> all = seen;
    const SamplingPast past{.prompt = all.first(prompt.size()), .answer = all.subspan(prompt.size())};
    const int32_t token = next(all.subspan(first_new), cache, sampler, past);
    if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) break;
    on_token(token);
    first_new = seen.size();
    seen.push_back(token);
  }
  return made;
}

}  // namespace weft
