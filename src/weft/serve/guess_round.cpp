// GuessRound: all rows on all threads.
#include "weft/serve/guess_round.h"

#include <algorithm>

namespace weft {

void GuessRound::choose_one(Running& r, std::vector<uint32_t>& allowed) const {
  Sequence& s = *r.sequence;
  const Request& request = s.request;
  try {
    const SamplingPast past = logits_.needs_past(r.row) ? s.past(s.answer(), vocab_, allowed) : SamplingPast{};
    const int32_t token = logits_.choose(r.row, s.sampler, uint64_t(s.size()), past);
    r.is_over = std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end();
    if (r.is_over) return;
    if (request.constraint) request.constraint->accept(token);
    s.tokens.push_back(token);
    r.is_over = s.size() == r.num_tokens + r.most || token >= own_vocab_;
  } catch (const Error&) {  // no token may come: the large model will say so
    r.is_over = true;
  }
}

void GuessRound::choose(Context& context, const Tensor& logits) {
  ThreadTeam& team = context.stream.team();
  allowed_.resize(size_t(team.size()));
  logits_.begin(logits, std::min(own_vocab_, vocab_));
  const auto each = [&](auto&& work) {
    team.parallel_for(int64_t(running_.size()), 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) work(running_[size_t(i)], i, allowed_[size_t(worker)]);
    });
  };
  each([&](Running& r, int64_t i, std::vector<uint32_t>& allowed) {
    r.row = i;
    Sequence& s = *r.sequence;
    if (!logits_.are_here())
      logits_.wish_choice(i, s.sampler, uint64_t(s.size()), s.past(s.answer(), vocab_, allowed), false);
  });
  logits_.find(context);
  logits_.read(context);
  each([&](Running& r, int64_t, std::vector<uint32_t>& allowed) { choose_one(r, allowed); });
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
