// SimulatedServer: a scheduler beside a cache that only remembers, so that a lost or mistaken row shows.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>

#include "weft/serve/scheduler.h"

namespace weft {

struct Asked {
  std::vector<int32_t> prompt = {};
  int64_t max_tokens = 4;
  int32_t priority = 0;
  std::string user = {};
  std::optional<int32_t> prompt_logprobs = {};
};

inline std::vector<int32_t> count_from(int32_t first, int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = first + int32_t(i);
  return tokens;
}

// What stands in a place of the cache is a hash of the tokens up to there. The
// next token of a sequence is a function of its tokens.
class SimulatedServer {
 public:
  explicit SimulatedServer(const SchedulerOptions& options, int32_t vocab = 1000)
      : scheduler(options),
        bt_(options.pool.block_tokens),
        tokens_per_step_(options.tokens_per_step),
        vocab_(vocab),
        cache_(size_t(options.pool.num_blocks * bt_)),
        states_(size_t(options.num_states)) {}

  RequestId add(Asked asked) {
    Request request;
    request.prompt = std::move(asked.prompt);
    request.max_tokens = asked.max_tokens;
    request.priority = asked.priority;
    request.user = asked.user;
    request.prompt_logprobs = asked.prompt_logprobs;
    scheduler.add(std::make_unique<Sequence>(++last_id_, std::move(request), nullptr));
    return last_id_;
  }

  // What each part of the step was: the request and its rows.
  struct Row {
    RequestId id;
    int64_t first, count;
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> step() {
    std::vector<Row> rows;
    const std::vector<StepPart> parts = plan_and_compute();
    for (const StepPart& part : parts) rows.push_back({part.sequence->id, part.first, part.count});
    scheduler.commit();
    for (const StepPart& part : parts) advance(*part.sequence);
    return rows;
  }
  // The same of an engine that goes ahead: a step's tokens are told when the next one was planned and computed. Some
  // are lost, if is_lost() says so.
  void step_ahead(const std::function<bool()>& is_lost) {
    std::vector<StepPart> parts = plan_and_compute();
    for (const auto& [sequence, token] : std::exchange(unread_, {})) {
      Sequence& s = *sequence;
      s.unread = -1;
      s.tokens.pop_back();
      const bool is_repeated = is_lost();
      if (is_repeated)
        scheduler.repeat_last(s), ++num_lost;
      else
        s.tokens.push_back(token);
      if (!is_repeated && s.num_answer() < s.request.max_tokens && !ends(s)) continue;
      std::erase_if(parts, [&](const StepPart& part) { return part.sequence == &s; });
      if (!is_repeated) finish(s);
    }
    scheduler.commit();
    for (const StepPart& part : parts) {
      Sequence& s = *part.sequence;
      if (s.remaining() > 0) continue;
      unread_.emplace_back(&s, next_of(s));
      s.unread = 0;
      s.tokens.push_back(-7);  // what nobody looks at
    }
  }
  bool has_unread() const { return !unread_.empty(); }
  void run(int64_t most_steps = 10000) {
    for (int64_t i = 0; i < most_steps && (scheduler.num_running() || scheduler.num_waiting()); ++i) step();
    EXPECT_EQ(scheduler.num_running() + scheduler.num_waiting(), 0) << "somebody starves";
  }
  void cancel(RequestId id) {
    if (const Sequence* s = scheduler.find(id)) scheduler.remove(*s);
  }

  Scheduler scheduler;
  std::vector<RequestId> finished;
  std::map<RequestId, std::vector<int32_t>> answers;
  std::map<RequestId, int64_t> cached;
  size_t num_accepted = 0;  // draft tokens
  size_t num_lost = 0;
  uint64_t ends_every = 0;  // an answer of so many, by itself; 0: none

 private:
  static uint64_t mix(uint64_t hash, int32_t token) {
    hash = (hash + uint64_t(token) + 1) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 31);
  }
  std::vector<StepPart> plan_and_compute() {
    const std::span<const StepPart> plan = scheduler.plan();
    std::vector<StepPart> parts(plan.begin(), plan.end());
    int64_t total = 0;
    std::set<int32_t> owned;
    leave_states(parts);
    for (const StepPart& part : parts) {
      compute(part);
      total += part.count + int64_t(part.sequence->draft_tokens.size());
      for (size_t b = size_t(part.sequence->num_known); b < part.sequence->blocks.size(); ++b)
        EXPECT_TRUE(owned.insert(part.sequence->blocks[b]).second) << "a block is used twice";
    }
    EXPECT_LE(total, tokens_per_step_);
    return parts;
  }
  // As a device knows it.
  std::vector<int32_t> text_of(const Sequence& s) const {
    std::vector<int32_t> text = s.tokens;
    for (const auto& [sequence, token] : unread_)
      if (sequence == &s) text.back() = token;
    return text;
  }
  uint64_t hash_of(const Sequence& s) const {
    uint64_t hash = 0;
    for (const int32_t token : s.tokens) hash = mix(hash, token);
    return hash;
  }
  int32_t next_of(const Sequence& s) const { return int32_t(hash_of(s) % uint64_t(vocab_)); }
  bool ends(const Sequence& s) const { return ends_every > 0 && (hash_of(s) >> 20) % ends_every == 0; }
  void finish(Sequence& s) {
    finished.push_back(s.id);
    answers[s.id].assign(s.answer().begin(), s.answer().end());
    cached[s.id] = s.num_cached;
    scheduler.remove(s);
  }
  size_t place(const Sequence& s, int64_t i) const { return size_t(s.blocks[size_t(i / bt_)] * bt_ + i % bt_); }
  // Rows go to the cache, and all that stands before them is what the sequence says.
  void compute(const StepPart& part) {
    const Sequence& s = *part.sequence;
    ASSERT_EQ(part.first, s.num_computed);
    ASSERT_GE(part.count, 1);
    ASSERT_LE(part.end(), s.size());
    uint64_t hash = 0;
    const std::vector<int32_t> text = text_of(s);
    for (int64_t i = 0; i < part.end(); ++i) {
      hash = mix(hash, text[size_t(i)]);
      if (i >= part.first) cache_[place(s, i)] = hash;
      ASSERT_EQ(cache_[place(s, i)], hash) << "the cache holds something else";
    }
    for (size_t i = 0; i < s.draft_tokens.size(); ++i)
      cache_[place(s, part.end() + int64_t(i))] = hash = mix(hash, s.draft_tokens[i]);
  }
  // States are hashes too: each run begins with that of all tokens before it, and none is written that others have.
  void leave_states(const std::vector<StepPart>& parts) {
    std::map<int32_t, RequestId> written, read;
    for (const StepPart& part : parts) {
      int64_t row = 0;
      std::vector<int32_t> tokens = text_of(*part.sequence);
      tokens.resize(size_t(part.end()));
      tokens.insert(tokens.end(), part.sequence->draft_tokens.begin(), part.sequence->draft_tokens.end());
      for (const TokenRun& run : part.runs) {
        EXPECT_EQ(run.begin, row);
        EXPECT_LT(run.begin, run.end);
        uint64_t hash = 0;
        for (int64_t i = 0; i < part.first + run.begin; ++i) hash = mix(hash, tokens[size_t(i)]);
        EXPECT_EQ(run.from < 0, part.first + run.begin == 0);
        if (run.from >= 0) EXPECT_EQ(states_[size_t(run.from)], hash) << "a state is another text's";
        for (row = run.begin; row < run.end; ++row) hash = mix(hash, tokens[size_t(part.first + row)]);
        const RequestId id = part.sequence->id;
        if (run.from >= 0) read.emplace(run.from, id);
        EXPECT_EQ(written.emplace(run.to, id).first->second, id) << "two write one state";
        new_states_.emplace_back(run.to, hash);
        if (&run != &part.runs.back()) states_[size_t(run.to)] = hash;  // the next run goes on
      }
      if (!states_.empty()) EXPECT_EQ(part.first + row, int64_t(tokens.size()));
    }
    for (const auto& [state, id] : written)
      if (const auto by = read.find(state); by != read.end()) EXPECT_EQ(by->second, id) << "a state is lost";
    for (const auto& [state, hash] : new_states_) states_[size_t(state)] = hash;
    new_states_.clear();
  }
  void advance(Sequence& s) {
    if (s.remaining() > 0) return;
    const std::vector<int32_t> draft_tokens = s.draft_tokens;
    size_t accepted = 0;
    bool has_ended = false;
    while (s.num_answer() < s.request.max_tokens && !has_ended) {
      s.tokens.push_back(next_of(s));
      has_ended = ends(s);
      if (accepted == draft_tokens.size() || draft_tokens[accepted] != s.tokens.back()) break;
      if (s.num_answer() < s.request.max_tokens) ++accepted;
    }
    if (!draft_tokens.empty()) scheduler.accept(s, int64_t(accepted));
    num_accepted += accepted;
    if (s.num_answer() >= s.request.max_tokens || has_ended) finish(s);
  }

  int64_t bt_, tokens_per_step_;
  int32_t vocab_;
  std::vector<uint64_t> cache_, states_;
  std::vector<std::pair<int32_t, uint64_t>> new_states_;
  std::vector<std::pair<Sequence*, int32_t>> unread_;  // the last token of each, which is not told yet
  RequestId last_id_ = 0;
};

}  // namespace weft
