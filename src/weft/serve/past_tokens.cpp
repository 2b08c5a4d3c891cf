// PastTokens: what is new or gone is all that is looked at one by one.
#include "weft/serve/past_tokens.h"

#include <algorithm>

namespace weft {

PastTokens::Entry& PastTokens::entry_of(int32_t token) {
  const auto [at, is_new] = places_.try_emplace(token, entries_.size());
  if (is_new) entries_.push_back({.token = token});
  return entries_[at->second];
}

void PastTokens::follow(std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  for (; num_prompt_ < prompt.size(); ++num_prompt_) entry_of(prompt[num_prompt_]).in_prompt = true;
  const auto same = size_t(std::ranges::mismatch(answer_, answer).in1 - answer_.begin());
  for (; answer_.size() > same; answer_.pop_back()) --entry_of(answer_.back()).in_answer;
  for (const int32_t token : answer.subspan(same)) ++entry_of(token).in_answer, answer_.push_back(token);
}

}  // namespace weft
