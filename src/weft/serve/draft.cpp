// Draft: what it lacks of each text, then a token of each in every pass.
#include "weft/serve/draft.h"

#include <algorithm>

namespace weft {

Draft::Draft(ForwardModel& model, int64_t vocab, int64_t num_blocks, int64_t block_tokens, const RowFormat& format,
             int64_t tokens_per_step, int64_t max_running, int64_t max_draft_tokens)
    : model_(model),
      tokens_per_step_(tokens_per_step),
      states_of_each_(model.config().has_states() ? max_draft_tokens + 1 : 0),
      runner_(model, num_blocks, block_tokens, format, max_running * states_of_each_),
      pool_({.num_blocks = num_blocks, .block_tokens = block_tokens, .keeps_prefixes = false}),
      states_(max_running * states_of_each_, 0),
      round_(vocab, model.config().vocab) {
  check(model.mesh().world().size() == 1, "a draft model is on one rank");
}

void Draft::release(Known& known) {
  for (; !known.blocks.empty(); known.blocks.pop_back()) pool_.release(known.blocks.back());
  for (; !known.states.empty(); known.states.pop_back()) states_.release(known.states.back().number);
  known.tokens.clear();
}

// Those who are not asked about now make room where there is none.
template <class Pool>
int32_t Draft::take(Pool& pool) {
  int32_t taken = pool.take();
  if (taken == Pool::kNone) forget_unused(), taken = pool.take();
  return taken;
}

bool Draft::make_room(Known& known, int64_t tokens) {
  while (int64_t(known.blocks.size()) * pool_.block_tokens() < tokens) {
    const int32_t block = take(pool_);
    if (block == BlockPool::kNone) return false;
    known.blocks.push_back(block);
  }
  return true;
}

// There are as many as can be asked about.
bool Draft::take_states(Known& known) {
  while (int64_t(known.states.size()) < states_of_each_) {
    const int32_t state = take(states_);
    if (state == StatePool::kNone) return false;
    known.states.push_back({state});
  }
  return true;
}

// Of tokens that it knows no more; where there is none of the last it knows, all are read again.
void Draft::forget_states_behind(Known& known) {
  if (states_of_each_ == 0) return;
  const auto count = int64_t(known.tokens.size());
  for (Known::State& state : known.states)
    if (state.tokens > count) state.tokens = -1;
  if (std::ranges::find(known.states, count, &Known::State::tokens) != known.states.end()) return;
  known.tokens.clear();
  for (Known::State& state : known.states) state.tokens = -1;
}

// Behind those that it knows, from whose state they go on; theirs takes the place of the oldest.
void Draft::add_rows(Known& known, std::span<const int32_t> rows, int64_t num_wanted, int32_t unread) {
  const auto first = int64_t(known.tokens.size());
  TokenRun run{.begin = 0, .end = int32_t(rows.size())};
  if (states_of_each_ > 0) {
    const auto before = std::ranges::find(known.states, first, &Known::State::tokens);
    if (before != known.states.end()) run.from = before->number;
    Known::State& oldest = *std::ranges::min_element(known.states, {}, &Known::State::tokens);
    run.to = oldest.number, oldest.tokens = first + int64_t(rows.size());
  }
  runner_.add(rows, {}, first, known.blocks, num_wanted, 0, {&run, 1}, unread);
  known.tokens.insert(known.tokens.end(), rows.begin(), rows.end());
}

void Draft::forget_unused() {
  for (auto at = known_.begin(); at != known_.end();) {
    if (!at->second.is_used) release(at->second);
    at = at->second.is_used ? std::next(at) : known_.erase(at);
  }
}

void Draft::begin(const DraftTask& task) {
  Sequence& s = *task.sequence;
  const int64_t most = std::min(task.most, model_.config().context - s.size());
  if (most < 1) return;
  Known& known = known_[s.id];
  const auto same = std::ranges::mismatch(known.tokens, s.tokens).in1 - known.tokens.begin();
  // The row behind the last token is always computed, since its logits are wanted.
  known.tokens.resize(size_t(std::min<int64_t>(same, s.size() - 1)));
  forget_states_behind(known);
  const auto is_unknown = [&](int32_t token) { return token >= model_.config().vocab; };
  if (std::any_of(s.tokens.begin() + std::ptrdiff_t(known.tokens.size()), s.tokens.end(), is_unknown)) return;
  if (!make_room(known, s.size() + most - 1) || !take_states(known)) return release(known);
  round_.begin(s, most);
}

// All but the rows that the first draft tokens come of.
void Draft::catch_up() {
  for (bool is_behind = true; is_behind;) {
    is_behind = false;
    runner_.clear();
    int64_t left = tokens_per_step_;
    for (const DraftRound::Running& r : round_.running()) {
      Known& k = known_.at(r.sequence->id);
      const auto first = int64_t(k.tokens.size()), count = std::min(left, r.num_tokens - 1 - first);
      if (count < 1) continue;
      const auto rows = std::span<const int32_t>(r.sequence->tokens).subspan(size_t(first), size_t(count));
      add_rows(k, rows, 0);
      left -= count;
      is_behind = true;
    }
    if (is_behind) runner_.run();
  }
}

// A pass over the last tokens of those who go on.
Tensor Draft::compute_next() {
  runner_.clear();
  for (const DraftRound::Running& r : round_.running())
    add_rows(known_.at(r.sequence->id), {&r.sequence->tokens.back(), 1}, 1, round_.unread(r));
  return runner_.run(round_.found_there());
}

// What the tokens were whose rows it computed before they were read.
void Draft::learn(const Sequence& s) {
  std::vector<int32_t>& tokens = known_.at(s.id).tokens;
  const auto first = size_t(s.size());
  if (tokens.size() <= first) return;
  tokens.resize(std::min(tokens.size(), first + s.draft_tokens.size()));
  std::copy_n(s.draft_tokens.begin(), tokens.size() - first, tokens.begin() + std::ptrdiff_t(first));
}

void Draft::propose(std::span<const DraftTask> tasks) {
  for (auto& [id, known] : known_) known.is_used = false;
  for (const DraftTask& task : tasks) known_[task.sequence->id].is_used = true;
  for (const DraftTask& task : tasks) begin(task);
  catch_up();
  while (!round_.running().empty()) round_.choose(model_.context(), compute_next());
  round_.finish(model_.context());
  for (const DraftTask& task : tasks) learn(*task.sequence);
}

}  // namespace weft
