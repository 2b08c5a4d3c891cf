// StepChoice: wishes and choices of all parts, on all threads.
#include "weft/serve/step_choice.h"

#include <algorithm>

namespace weft {
namespace {

bool has(const std::vector<int32_t>& tokens, int32_t token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

}  // namespace

bool StepChoice::is_answered(const StepPart& part) {
  const Sequence& s = *part.sequence;
  return part.end() == s.size() && s.num_answer() < s.request.max_tokens;
}

void StepChoice::each_part(std::span<const StepPart> parts,
                           FunctionRef<void(const StepPart&, PartChoice&, Scratch&)> work) {
  // What a device found is read in no time: less than it takes to wake a thread.
  constexpr int64_t kLogitsOfATask = 1 << 15, kFoundOfATask = 32;
  ThreadTeam& team = context_.stream.team();
  scratch_.resize(size_t(team.size()));
  const int64_t grain = logits_.are_here() ? 1 + kLogitsOfATask / vocab_ : kFoundOfATask;
  team.parallel_for(int64_t(parts.size()), grain, [&](int64_t begin, int64_t end, int worker) {
    for (auto i = size_t(begin); i < size_t(end); ++i)
      if (parts[i].sequence) work(parts[i], choices_[i], scratch_[size_t(worker)]);
  });
}

void StepChoice::begin(std::span<const StepPart> parts, const Tensor& logits) {
  choices_.assign(parts.size(), {});
  int64_t row = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    choices_[i].first_row = row;
    row += parts[i].num_wanted();
    choices_[i].first = row - 1 - (parts[i].sequence ? int64_t(parts[i].sequence->draft_tokens.size()) : 0);
  }
  are_unread_ = false, has_logits_ = bool(logits);
  if (!logits) return;
  logits_.begin(logits, vocab_);
  if (logits_.are_here()) return;
  each_part(parts,
            [this](const StepPart& part, PartChoice& choice, Scratch& scratch) { wish(part, choice, scratch); });
  logits_.find(context_);
}

// What comes behind draft tokens is wished as if they were accepted. A constraint has not accepted them.
void StepChoice::wish(const StepPart& part, const PartChoice& choice, Scratch& scratch) {
  Sequence& s = *part.sequence;
  const std::optional<int32_t> of_prompt = s.request.prompt_logprobs, of_answer = s.request.logprobs;
  for (int64_t at = part.first_wanted; of_prompt && at < part.end() && at + 1 < s.num_prompt; ++at) {
    const int64_t row = choice.first_row + at - part.first_wanted;
    *of_prompt > LogitRows::kMostTop ? logits_.wish_whole(row) : logits_.wish_token(row, s.tokens[size_t(at + 1)]);
  }
  if (s.request.kind == Request::Kind::weigh && part.end() == s.size()) logits_.wish_whole(choice.first);
  if (!is_answered(part)) return;
  const bool has_alternatives = of_answer.value_or(0) > LogitRows::kMostTop;
  scratch.said.assign(s.answer().begin(), s.answer().end());
  for (size_t i = 0; i <= s.draft_tokens.size(); ++i) {
    const int64_t row = choice.first + int64_t(i);
    if (has_alternatives || (i > 0 && s.request.constraint)) {
      logits_.wish_whole(row);
    } else {
      try {
        const SamplingPast past = s.past(scratch.said, vocab_, scratch.allowed);
        logits_.wish_choice(row, s.sampler, uint64_t(s.size()) + i, past, of_answer.has_value());
      } catch (const Error&) {
        logits_.wish_whole(row);  // to be that request's error when its token is chosen
      }
    }
    if (i < s.draft_tokens.size()) scratch.said.push_back(s.draft_tokens[i]);
  }
}

bool StepChoice::leave_unread(std::span<const StepPart> parts, bool has_states) {
  if (!has_logits_ || !logits_.may_change()) return false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const StepPart& part = parts[i];
    if (part.sequence && part.sequence->request.pools_all()) return false;
    if (!part.sequence || part.end() < part.sequence->size()) continue;
    // An embedding lies where the next step leaves its own, and the state behind a row that is lost is no more.
    if (!is_answered(part) || !part.sequence->draft_tokens.empty() || part.sequence->num_at_once > 0) return false;
    if (has_states && logits_.may_be_lost(choices_[i].first)) return false;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    Sequence* const s = parts[i].sequence;
    if (!s || parts[i].end() < s->size()) continue;
    s->unread = logits_.place(choices_[i].first);
    s->tokens.push_back(0);
    are_unread_ = true;
  }
  return are_unread_;
}

void StepChoice::choose(std::span<const StepPart> parts) {
  if (!has_logits_) return;
  logits_.read(context_, are_unread_);
  each_part(parts,
            [this](const StepPart& part, PartChoice& choice, Scratch& scratch) { choose(part, choice, scratch); });
}

void StepChoice::choose(const StepPart& part, PartChoice& choice, Scratch& scratch) {
  Sequence& s = *part.sequence;
  if (std::exchange(s.unread, -1) >= 0) s.tokens.pop_back();
  if (!is_answered(part)) return;
  s.num_at_once = std::max<int64_t>(s.num_at_once - 1, 0);
  choice.is_lost = logits_.is_lost(choice.first);
  if (choice.is_lost) return void(s.num_at_once = LogitRows::kAtOnceAfterLoss);
  try {
    while (choose_next(s, choice, scratch)) ++choice.num_accepted;
  } catch (const Error& e) {
    choice.error = e.what(), choice.is_refusal = dynamic_cast<const UsageError*>(&e) != nullptr;
  }
  for (int64_t i = 0; s.request.logprobs && i < choice.count; ++i)
    choice.log_sums.push_back(logits_.log_sum(choice.first + i));
}

int32_t StepChoice::choose_token(Sequence& s, int64_t row, Scratch& scratch) {
  try {
    const SamplingPast past = logits_.needs_past(row) ? s.past(s.answer(), vocab_, scratch.allowed) : SamplingPast{};
    return logits_.choose(row, s.sampler, uint64_t(s.size()), past);
  } catch (const NoTokenMayCome&) {
    check_choice(s.sampler, s.request, s.past(s.answer(), vocab_, scratch.allowed), vocab_);
    throw;
  }
}

// True when the token had been drafted, so that the one behind it can be chosen too.
bool StepChoice::choose_next(Sequence& s, PartChoice& choice, Scratch& scratch) {
  const Request& r = s.request;
  const int32_t token = choose_token(s, choice.first + choice.count, scratch);
  if (has(r.stop_tokens, token)) {
    choice.stop = token;
    return false;
  }
  if (r.constraint) r.constraint->accept(token);
  s.tokens.push_back(token);
  const auto i = size_t(choice.count++);
  return i < s.draft_tokens.size() && s.draft_tokens[i] == token && s.num_answer() < r.max_tokens;
}

}  // namespace weft
