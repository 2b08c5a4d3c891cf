// Generator: prefill, then decode.
#include "weft/serve/generator.h"

#include <algorithm>

namespace weft {

SamplingPast Generator::Text::past() const {
  const std::span<const int32_t> all = tokens;
  return {.prompt = all.first(num_prompt), .answer = all.subspan(num_prompt)};
}

Tensor Generator::compute(Text& text) {
  Context& context = model_.context();
  KvCache& cache = text.cache;
  const auto capacity = cache.capacity(), rest = int64_t(text.tokens.size() - text.num_cached);
  if (!text.has_unread && cache.length() + rest > capacity) {
    cache.clear();
    text.num_cached = text.tokens.size() - size_t(std::max<int64_t>(1, capacity / 2));
  }
  const std::span said = std::span<const int32_t>(text.tokens).subspan(text.num_cached);
  const auto count = text.has_unread ? 1 : int64_t(said.size());
  positions_.resize(size_t(count));
  for (int64_t i = 0; i < count; ++i) positions_[size_t(i)] = int32_t(cache.length() + i);
  const RepeatedStep step(context.stream, this, count == 1 ? 1 + turns_.next(text.has_unread) : 0);
  Tensor unread;
  if (text.has_unread) {
    constexpr int32_t kFirstFound = -1;
    unread = context.empty(DType::i32, {1});
    context.kernels.place_tokens(context.stream, unread, &kFirstFound, rows_.found_there());
  }
  const Pass pass{.ids = unread ? static_cast<const int32_t*>(unread.raw()) : said.data(),
                  .ids_are_there = bool(unread),
                  .num_tokens = count,
                  .attention = {.positions = positions_.data(), .cache = &cache}};
  text.num_cached += size_t(count);
  return model_.logits(pass, count - 1, 1);
}

bool Generator::choose(Text& text, const Tensor& logits) {
  if (!logits) return false;
  rows_.begin(logits, model_.config().vocab);
  rows_.wish_choice(0, text.sampler, text.tokens.size(), text.past(), false);
  rows_.find(model_.context());
  text.num_at_once = std::max<int64_t>(text.num_at_once - 1, 0);
  const bool can_go_back = !model_.config().has_states();
  return rows_.may_change() && (can_go_back || !rows_.may_be_lost(0)) && text.num_at_once == 0 &&
         model_.mesh().world().size() == 1 && text.cache.length() < text.cache.capacity();
}

std::optional<int32_t> Generator::read(Text& text, const Tensor& logits) {
  if (!logits && !text.has_unread) return model_.share(0);  // of another stage
  rows_.read(model_.context(), text.has_unread);
  if (!rows_.is_lost(0)) return model_.share(rows_.choose(0, text.sampler, text.tokens.size(), text.past()));
  text.num_at_once = LogitRows::kAtOnceAfterLoss;
  return std::nullopt;
}

int64_t Generator::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                            FunctionRef<void(int32_t)> on_token) {
  const ModelConfig& c = model_.config();
  if (prompt.empty()) throw UsageError("the prompt is empty: give at least one token with --prompt or --prompt-file");
  if (int64_t(prompt.size()) >= c.context)
    throw UsageError("the prompt has {} tokens and the model's context is {}: shorten the prompt", prompt.size(),
                     c.context);
  const int64_t capacity = std::min(c.context, int64_t(prompt.size()) + options.max_tokens);
  Text text{.cache = KvCache(model_.context(), int(c.layers), capacity),
            .sampler = Sampler(options.sampling),
            .num_prompt = prompt.size(),
            .tokens = {prompt.begin(), prompt.end()}};
  int64_t made = 0;
  if (options.max_tokens < 1) return made;
  Tensor logits = compute(text);
  bool may_wait = choose(text, logits);
  while (true) {
    text.has_unread = may_wait && made + 1 < options.max_tokens;
    const Tensor next = text.has_unread ? compute(text) : Tensor();
    const std::optional<int32_t> token = read(text, logits);
    text.has_unread = false;
    if (token) {
      if (std::ranges::find(options.stop_tokens, *token) != options.stop_tokens.end()) return made;
      on_token(*token);
      text.tokens.push_back(*token);
      if (++made == options.max_tokens) return made;
    } else {  // the one before it is computed again, and what was computed for it is worth nothing
      text.cache.drop(2);
      text.num_cached -= 2;
    }
    logits = token && next ? next : compute(text);
    may_wait = choose(text, logits);
  }
}

}  // namespace weft
