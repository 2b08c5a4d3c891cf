// DraftRound: all rows on all threads.
#include "weft/serve/draft_round.h"

#include <algorithm>
#include <iterator>

namespace weft {

namespace {

// Of a request whose next choice depends on what was chosen before.
bool looks_back(const Sequence& s) {
  const SamplingOptions& o = s.sampler.options();
  const bool has_penalties = o.presence_penalty != 0 || o.frequency_penalty != 0 || o.repetition_penalty != 1;
  return has_penalties || s.request.constraint || !s.request.bad_words.empty();
}

}  // namespace

LogitRows& DraftRound::next_turn() {
  if (turns_.size() == num_turns_) turns_.emplace_back();
  return turns_[num_turns_++];
}

template <class Work>
void DraftRound::each(Context& context, Work&& work) {
  ThreadTeam& team = context.stream.team();
  allowed_.resize(size_t(team.size()));
  team.parallel_for(int64_t(running_.size()), 1, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t i = begin; i < end; ++i) work(running_[size_t(i)], allowed_[size_t(worker)]);
  });
}

void DraftRound::choose(Context& context, const Tensor& logits) {
  LogitRows& turn = next_turn();
  turn.begin(logits, std::min(own_vocab_, vocab_));
  for (size_t i = 0; i < running_.size(); ++i) running_[i].rows.push_back(int64_t(i));
  if (!turn.are_here())
    each(context, [&](Running& r, std::vector<uint32_t>& allowed) {
      Sequence& s = *r.sequence;
      try {
        turn.wish_choice(r.row(), s.sampler, uint64_t(s.size()), s.past(s.answer(), vocab_, allowed), false);
      } catch (const UsageError&) {
        turn.wish_whole(r.row());  // from which no token is chosen, either
      }
    });
  turn.find(context);
  if (num_turns_ == 1)
    are_unread_ =
        turn.may_change() && std::ranges::none_of(running_, [](const Running& r) { return looks_back(*r.sequence); });
  if (are_unread_)
    for (Running& r : running_) {
      r.sequence->tokens.push_back(0);
      r.is_over = r.sequence->size() == r.num_tokens + r.most;
    }
  else
    read_at_once(context);
  const auto over = std::ranges::stable_partition(running_, [](const Running& r) { return !r.is_over; });
  std::ranges::move(over, std::back_inserter(over_));
  running_.erase(over.begin(), over.end());
}

int32_t DraftRound::unread(const Running& r) const {
  const bool is_unread = are_unread_ && num_turns_ > 0 && !r.rows.empty();
  return is_unread ? turns_[num_turns_ - 1].place(r.row()) : -1;
}

void DraftRound::read_at_once(Context& context) {
  turns_[num_turns_ - 1].read(context);
  each(context, [&](Running& r, std::vector<uint32_t>& allowed) { choose_one(r, allowed); });
}

void DraftRound::choose_one(Running& r, std::vector<uint32_t>& allowed) const {
  const LogitRows& turn = turns_[num_turns_ - 1];
  Sequence& s = *r.sequence;
  const Request& request = s.request;
  try {
    const SamplingPast past = turn.needs_past(r.row()) ? s.past(s.answer(), vocab_, allowed) : SamplingPast{};
    const int32_t token = turn.choose(r.row(), s.sampler, uint64_t(s.size()), past);
    r.is_over = std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end();
    if (r.is_over) return;
    if (request.constraint) request.constraint->accept(token);
    s.tokens.push_back(token);
    r.is_over = s.size() == r.num_tokens + r.most || token >= own_vocab_;
  } catch (const Error&) {  // no token may come: the large model will say so
    r.is_over = true;
  }
}

void DraftRound::finish(Context& context) {
  if (are_unread_)
    for (size_t i = num_turns_; i > 0; --i) turns_[i - 1].read(context, true);  // behind the last all are there
  for (const Running& r : over_) give_draft_tokens(r);
  over_.clear();
  num_turns_ = 0, are_unread_ = false;
}

// Up to the first that ends its answer, or that nobody could choose.
void DraftRound::give_draft_tokens(const Running& r) const {
  Sequence& s = *r.sequence;
  if (are_unread_) {
    s.tokens.resize(size_t(r.num_tokens));
    for (size_t i = 0; i < r.rows.size(); ++i) {
      if (turns_[i].is_lost(r.rows[i])) break;
      try {
        const int32_t token = turns_[i].choose(r.rows[i], s.sampler, uint64_t(s.size()), {});
        if (std::ranges::find(s.request.stop_tokens, token) != s.request.stop_tokens.end()) break;
        s.tokens.push_back(token);
        if (token >= own_vocab_) break;
      } catch (const Error&) {
        break;
      }
    }
  }
  s.draft_tokens.assign(s.tokens.begin() + std::ptrdiff_t(r.num_tokens), s.tokens.end());
  s.tokens.resize(size_t(r.num_tokens));
  if (s.request.constraint) s.request.constraint->rewind(int64_t(s.draft_tokens.size()));
}

}  // namespace weft
