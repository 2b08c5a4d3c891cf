// Scheduler: blocks for what runs, then admission, then rows.
#include "weft/serve/scheduler.h"

#include <array>
#include <tuple>
#include <utility>

#include "weft/base/error.h"
#include "weft/serve/prompt_lookup.h"

namespace weft {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), pool_(options.pool), states_(options.num_states, options.pool.num_blocks) {
  if (options.max_running < 1 || options.tokens_per_step < 1)
    throw UsageError("{} requests with {} tokens a step do nothing: at least one of each is needed",
                     options.max_running, options.tokens_per_step);
  options_.max_running = std::min(options.max_running, options.tokens_per_step);
  check(options.num_states == 0 || options.num_states >= options_.max_running, "{} requests run with {} states",
        options_.max_running, options.num_states);
}

bool Scheduler::goes_before(const Sequence& a, const Sequence& b) {
  return std::tie(a.request.priority, a.turn, a.id) < std::tie(b.request.priority, b.turn, b.id);
}

void Scheduler::insert(Line& line, std::unique_ptr<Sequence> sequence) {
  const auto later = std::upper_bound(line.begin(), line.end(), sequence,
                                      [](const auto& a, const auto& b) { return goes_before(*a, *b); });
  line.insert(later, std::move(sequence));
}

void Scheduler::set_turn(Sequence& s) {
  if (waiting_.empty()) ends_.clear();  // nobody is behind
  if (ends_.size() > 2 * waiting_.size() + 64)
    std::erase_if(ends_, [&](const auto& e) { return e.second <= clock_; });
  uint64_t& end = ends_[s.request.user];
  s.turn = std::max(clock_, end);
  end = s.turn + uint64_t(s.num_prompt + s.request.max_tokens);
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  check(sequence->size() <= most_tokens(), "{} tokens do not fit a cache of {}", sequence->size(), most_tokens());
  set_turn(*sequence);
  insert(waiting_, std::move(sequence));
}

std::span<const int32_t> Scheduler::tokens_of(const Sequence& s, int64_t block) const {
  return std::span(s.tokens).subspan(size_t(block * pool_.block_tokens()), size_t(pool_.block_tokens()));
}

int32_t Scheduler::parent_of(const Sequence& s, int64_t block) {
  return block == 0 ? BlockPool::root(s.adapter) : s.blocks[size_t(block - 1)];
}

// Last block first, as the pool wants it.
void Scheduler::release(Sequence& s) {
  for (; !s.blocks.empty(); s.blocks.pop_back()) pool_.release(s.blocks.back());
  s.num_computed = s.num_known = 0;
  release_states(s);
}

void Scheduler::release_states(Sequence& s) {
  for (const Sequence::Mark& mark : s.marks) states_.release(mark.state);
  s.marks.clear();
  for (int32_t* const held : {&s.state, &s.source})
    if (*held >= 0) states_.release(std::exchange(*held, -1));
  s.last_kept = -1, s.branch = 0;
}

// What is known of the block's old contents is no longer.
int32_t Scheduler::take_block() {
  const int32_t block = pool_.take();
  if (block != BlockPool::kNone) states_.forget(block);
  return block;
}

void Scheduler::preempt_last() {
  std::unique_ptr<Sequence> last = std::move(running_.back());
  running_.pop_back();
  release(*last);
  insert(waiting_, std::move(last));
  ++num_preemptions_;
}

// A block for each sequence whose last token begins one. True when somebody had to go for it.
bool Scheduler::grow() {
  bool has_preempted = false;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& s = *running_[i];
    while (int64_t(s.blocks.size()) < blocks_for(s.num_computed + s.remaining())) {
      if (const int32_t block = take_block(); block != BlockPool::kNone) {
        s.blocks.push_back(block);
        continue;
      }
      const bool is_last = i + 1 == running_.size();
      preempt_last();
      has_preempted = true;
      if (is_last) return true;
    }
  }
  return has_preempted;
}

// One of its own, and that behind the last of the found blocks that has one; those behind that are let go.
bool Scheduler::take_states(Sequence& s) {
  if (options_.num_states == 0) return true;
  const auto found = int64_t(s.blocks.size());
  const auto has_state = [&] { return states_.find(s.blocks.back()) != StatePool::kNone; };
  for (; !s.blocks.empty() && !has_state(); s.blocks.pop_back()) pool_.release(s.blocks.back());
  if (int64_t(s.blocks.size()) < found) s.branch = found * pool_.block_tokens();
  if (!s.blocks.empty()) states_.hold(s.source = states_.find(s.blocks.back()));
  s.state = states_.take();
  return s.state != StatePool::kNone;
}

// Of the prompt's tokens those before the end of a full block, but for its last ones: templates of conversations end
// a prompt with what begins the answer, and write it otherwise when they repeat that answer.
int64_t Scheduler::last_of_prompt(const Sequence& s) const {
  constexpr int64_t kBeginAnswer = 8;
  const int64_t block = pool_.block_tokens(), last = 1 + std::min(kBeginAnswer, block / 2);
  return std::max<int64_t>(s.num_prompt - last, 0) / block * block;
}

// Into a state of its own, by way of those that shall stay: of draft tokens one before each, or else of the prompt's
// end, of where it begins to be its own, and of a block's end in an answer.
void Scheduler::set_runs(StepPart& part) {
  Sequence& s = *part.sequence;
  if (s.state < 0) return;
  int32_t from = part.first == 0 ? -1 : s.source >= 0 ? s.source : s.state;
  int64_t at = part.first;
  const auto run_to = [&](int64_t end, int32_t to) {
    part.runs.push_back(
        {.begin = int32_t(at - part.first), .end = int32_t(end - part.first), .from = from, .to = to});
    at = end, from = to;
  };
  if (!s.draft_tokens.empty()) {
    for (const auto& [tokens, state] : s.marks) run_to(tokens, state);
    return run_to(part.end() + int64_t(s.draft_tokens.size()), s.state);
  }
  const int64_t of_prompt = last_of_prompt(s);
  const bool ends_block = part.end() % pool_.block_tokens() == 0 && part.end() > of_prompt;
  std::array wanted{s.branch, of_prompt, ends_block ? part.end() : 0};
  std::ranges::sort(wanted);
  for (const int64_t tokens : wanted) {
    if (!keeps_states() || tokens <= at || tokens > part.end()) continue;
    const int32_t state = states_.take();
    if (state == StatePool::kNone) continue;
    s.marks.push_back({tokens, state});
    run_to(tokens, state);
  }
  if (at < part.end()) run_to(part.end(), s.state);
}

// After the step: of its marks those are kept that stand behind a block, and what was read is let go.
void Scheduler::keep_states(Sequence& s) {
  if (s.source >= 0) states_.release(std::exchange(s.source, -1));
  for (const auto& [tokens, state] : s.marks) {
    if (keeps_states() && tokens <= s.num_computed && tokens % pool_.block_tokens() == 0) {
      const int32_t block = s.blocks[size_t(tokens / pool_.block_tokens() - 1)];
      states_.keep(state, block);
      if (tokens > last_of_prompt(s) && states_.find(block) == state) {
        if (s.last_kept >= 0) states_.forget(s.last_kept);
        s.last_kept = block;
      }
    }
    if (tokens == s.num_computed)
      s.source = state;
    else
      states_.release(state);
  }
  s.marks.clear();
}

bool Scheduler::try_admit(Sequence& s) {
  const int64_t most_found = s.first_wanted() / pool_.block_tokens();
  for (int64_t i = 0; i < most_found; ++i) {
    const int32_t block = pool_.find(parent_of(s, i), tokens_of(s, i));
    if (block == BlockPool::kNone) break;
    s.blocks.push_back(block);
  }
  if (!take_states(s)) {
    release(s);
    return false;
  }
  const auto found = int64_t(s.blocks.size()), wanted = blocks_for(s.size()) - found;
  // One more for each that runs, so that it does not have to go again at once.
  if (wanted + num_running() > pool_.num_available()) {
    release(s);
    return false;
  }
  for (int64_t i = 0; i < wanted; ++i) s.blocks.push_back(take_block());
  s.num_known = found;
  s.num_computed = found * pool_.block_tokens();
  if (!s.was_admitted) {
    s.was_admitted = true;
    s.num_cached = s.num_computed;
    clock_ = std::max(clock_, s.turn) + 1;
  }
  return true;
}

// Sends the last that runs back to the queue when the first of the queue is more urgent.
bool Scheduler::make_room() {
  if (running_.back()->request.priority <= waiting_.front()->request.priority) return false;
  preempt_last();
  return true;
}

// Of a step, beside the answers in it.
int64_t Scheduler::prompt_rows(int64_t num_answers) const {
  const int64_t left = options_.tokens_per_step - num_answers;
  if (num_answers == 0) return left;
  return std::min(left, std::max(good_rows_ - num_answers, kFewestPromptRows));
}

// Whether a step has rows left beside those that go before it.
bool Scheduler::has_rows_for(const Sequence& sequence) const {
  int64_t answers = 0, prompts = 0;
  for (const auto& s : running_) {
    if (s->request.priority > sequence.request.priority) continue;
    s->remaining() == 1 ? ++answers : prompts += s->remaining();
  }
  return prompts < prompt_rows(answers);
}

void Scheduler::admit() {
  while (!waiting_.empty() && has_rows_for(*waiting_.front())) {
    if (num_running() < options_.max_running && try_admit(*waiting_.front())) {
      std::unique_ptr<Sequence> first = std::move(waiting_.front());
      waiting_.pop_front();
      insert(running_, std::move(first));
      continue;
    }
    check(!running_.empty(), "the cache has no room for one sequence alone");
    if (!make_room()) return;
  }
}

std::span<const StepPart> Scheduler::plan() {
  if (!grow()) admit();
  parts_.clear();
  const auto add_part = [&](Sequence& s, int64_t most) {
    const int64_t count = std::min(s.remaining(), most), end = s.num_computed + count;
    if (count == 0) return count;
    parts_.push_back({.sequence = &s,
                      .first = s.num_computed,
                      .count = count,
                      .first_wanted = std::clamp(s.first_wanted(), s.num_computed, end)});
    return count;
  };
  int64_t answers = 0, prompts = 0;
  for (const auto& s : running_)
    if (s->remaining() == 1) answers += add_part(*s, options_.tokens_per_step - answers);
  const int64_t most = prompt_rows(answers);
  for (const auto& s : running_)
    if (s->remaining() > 1) prompts += add_part(*s, most - prompts);
  propose(options_.tokens_per_step - answers - prompts);
  for (StepPart& part : parts_) set_runs(part);
  return parts_;
}

// Where fewer steps than this have draft tokens that are accepted, one of so many is tried.
constexpr float kLeastShare = 0.125f;
constexpr int64_t kTryEvery = 8;
constexpr float kStepsOfShare = 16;  // that the share is of

// Only an answer is drafted, and not its last token, which takes no row.
int64_t Scheduler::max_draft_tokens(Sequence& s, int64_t left) const {
  if (s.remaining() != 1 || s.num_answer() == 0) return 0;
  if (s.share_drafted < kLeastShare && ++s.num_undrafted % kTryEvery != 0) return 0;
  return std::min({left, options_.max_draft_tokens, s.num_hoped, s.request.max_tokens - s.num_answer() - 1});
}

// Into the rows that are left.
void Scheduler::propose(int64_t left) {
  for (const StepPart& part : parts_) part.sequence->draft_tokens.clear();
  if (options_.max_draft_tokens == 0) return;
  tasks_.clear();
  for (const StepPart& part : parts_) {
    Sequence& s = *part.sequence;
    const int64_t most = max_draft_tokens(s, left);
    if (most < 1) continue;
    if (options_.propose) {
      const int64_t places = places_for_draft_tokens(s, most);
      if (places > 0) tasks_.push_back({&s, places});
      left -= places;
    } else {
      propose_by_lookup(s.tokens, most, s.draft_tokens);
      fit_draft_tokens(s);
      left -= int64_t(s.draft_tokens.size());
    }
  }
  if (options_.propose) options_.propose(tasks_);
  for (const DraftTask& task : tasks_) fit_draft_tokens(*task.sequence);
}

// As many as there are blocks for, as far as these are free.
int64_t Scheduler::places_for_draft_tokens(Sequence& s, int64_t most) {
  const auto places = [&] { return int64_t(s.blocks.size()) * pool_.block_tokens() - s.size(); };
  while (places() < most && pool_.num_free() > 0) s.blocks.push_back(take_block());
  return std::min(places(), most);
}

// Leaves as many as there are places and states for, and no more blocks than that takes.
void Scheduler::fit_draft_tokens(Sequence& s) {
  s.draft_tokens.resize(size_t(places_for_draft_tokens(s, int64_t(s.draft_tokens.size()))));
  release_blocks_behind(s, s.size() + int64_t(s.draft_tokens.size()));
  if (s.state < 0) return;
  // Where a draft token is not accepted the state before it is wanted.
  for (int64_t tokens = s.size(); s.marks.size() < s.draft_tokens.size(); ++tokens) {
    const int32_t state = states_.take();
    if (state == StatePool::kNone) return s.draft_tokens.resize(s.marks.size());
    s.marks.push_back({tokens, state});
  }
}

void Scheduler::accept(Sequence& s, int64_t count) {
  const auto drafted = int64_t(s.draft_tokens.size());
  s.share_drafted += ((count > 0 ? 1.0f : 0.0f) - s.share_drafted) / kStepsOfShare;
  s.num_hoped = count == drafted ? std::min(options_.max_draft_tokens, 2 * drafted) : count + 1;
  s.draft_tokens.clear();
  s.num_computed += count;
  release_blocks_behind(s, s.size());
  keep_full_blocks(s);
  keep_states(s);
}

void Scheduler::release_blocks_behind(Sequence& s, int64_t tokens) {
  for (; int64_t(s.blocks.size()) > blocks_for(tokens); s.blocks.pop_back()) pool_.release(s.blocks.back());
}

void Scheduler::keep_full_blocks(Sequence& s) {
  if (!pool_.keeps_prefixes()) return;
  for (int64_t& i = s.num_known; (i + 1) * pool_.block_tokens() <= s.num_computed; ++i)
    s.blocks[size_t(i)] = pool_.keep(s.blocks[size_t(i)], parent_of(s, i), tokens_of(s, i));
}

void Scheduler::repeat_last(Sequence& s) {
  check(s.state < 0, "the state behind a token is not there any more");
  drop_part(s);
  s.num_computed = std::min(s.num_computed, s.size() - 1);
}

void Scheduler::drop_part(const Sequence& s) {
  std::erase_if(parts_, [&](const StepPart& part) { return part.sequence == &s; });
}

void Scheduler::commit() {
  for (const StepPart& part : parts_) {
    part.sequence->num_computed += part.count;
    keep_full_blocks(*part.sequence);
    if (part.sequence->draft_tokens.empty()) keep_states(*part.sequence);
  }
  parts_.clear();
}

std::unique_ptr<Sequence> Scheduler::remove(const Sequence& sequence) {
  for (Line* line : {&running_, &waiting_}) {
    const auto at = std::find_if(line->begin(), line->end(), [&](const auto& s) { return s.get() == &sequence; });
    if (at == line->end()) continue;
    std::unique_ptr<Sequence> removed = std::move(*at);
    line->erase(at);
    drop_part(sequence);
    release(*removed);
    return removed;
  }
  return nullptr;
}

Sequence* Scheduler::find(RequestId id) const {
  for (const Line* line : {&running_, &waiting_})
    for (const auto& s : *line)
      if (s->id == id) return s.get();
  return nullptr;
}

bool Scheduler::has_adapter(int32_t adapter) const {
  const auto has_it = [&](const auto& s) { return s->adapter == adapter; };
  return std::ranges::any_of(running_, has_it) || std::ranges::any_of(waiting_, has_it);
}

Sequence* Scheduler::any() const {
  for (const Line* line : {&running_, &waiting_})
    if (!line->empty()) return line->front().get();
  return nullptr;
}

int64_t Scheduler::num_tokens_held() const {
  int64_t tokens = pool_.num_used_known() * pool_.block_tokens();
  for (const auto& s : running_) tokens += s->num_computed - s->num_known * pool_.block_tokens();
  return tokens;
}

}  // namespace weft
