// GuessRound: all rows on all threads.
#include "weft/serve/guess_round.h"

#include <algorithm>
#include <limits>

namespace weft {

void GuessRound::choose_one(Running& r, std::span<const float> logits, std::vector<uint32_t>& allowed) const {
  Sequence& s = *r.sequence;
  const Request& request = s.request;
  SamplingPast past{.prompt = s.prompt(), .answer = s.answer(), .bad_words = request.bad_words};
  if (s.num_answer() < request.min_tokens) past.banned = request.stop_tokens;
  try {
    if (request.constraint) {
      allowed.resize(size_t(vocab_ + 31) / 32);
      request.constraint->fill(allowed);
      past.allowed = allowed;
    }
    const int32_t token = s.sampler.choose(logits, uint64_t(s.size()), past);
    r.is_over = std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end();
    if (r.is_over) return;
    if (request.constraint) request.constraint->accept(token);
    s.tokens.push_back(token);
    r.is_over = s.size() == r.num_tokens + r.most || token >= own_vocab_;
  } catch (const Error&) {  // no token may come: the large model will say so
    r.is_over = true;
  }
}

void GuessRound::choose(ThreadTeam& team, const float* logits) {
  rows_.resize(size_t(team.size())), allowed_.resize(size_t(team.size()));
  const int64_t both = std::min(own_vocab_, vocab_);
  team.parallel_for(int64_t(running_.size()), 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) {
      std::vector<float>& row = rows_[size_t(worker)];
      row.assign(size_t(vocab_), -std::numeric_limits<float>::infinity());
      std::copy_n(logits + i * own_vocab_, both, row.begin());
      running_[size_t(i)].row = i;
      choose_one(running_[size_t(i)], row, allowed_[size_t(worker)]);
    }
  });
  std::erase_if(running_, [](const Running& r) {
    if (!r.is_over) return false;
    Sequence& s = *r.sequence;
    s.guesses.assign(s.tokens.begin() + std::ptrdiff_t(r.num_tokens), s.tokens.end());
    s.tokens.resize(size_t(r.num_tokens));
    if (s.request.constraint) s.request.constraint->rewind(int64_t(s.guesses.size()));
    return true;
  });
}

}  // namespace weft
