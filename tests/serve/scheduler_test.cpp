// Scheduler: order, pieces, admission, preemption, prefixes; and thousands of random steps in which nothing is lost.
#include "weft/serve/scheduler.h"

#include <random>

#include "serve/simulated_server.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using Rows = std::vector<SimulatedServer::Row>;

TEST(SchedulerTest, CutsPromptsIntoPiecesBesideTokensUnderWay) {
  SimulatedServer s({.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 4, .tokens_per_step = 8});
  s.add({count_from(0, 6), 5});
  s.add({count_from(100, 12), 2});
  EXPECT_EQ(s.step(), (Rows{{1, 0, 6}, {2, 0, 2}}));
  EXPECT_EQ(s.step(), (Rows{{1, 6, 1}, {2, 2, 7}}));
  EXPECT_EQ(s.step(), (Rows{{1, 7, 1}, {2, 9, 3}}));
  EXPECT_EQ(s.step(), (Rows{{1, 8, 1}, {2, 12, 1}}));
  EXPECT_EQ(s.finished, (std::vector<RequestId>{2}));
}

// A prompt of a thousand tokens, alone and beside an answer.
struct PieceCase {
  int64_t tokens_per_step, good_rows, beside_an_answer;
};
class PieceTest : public testing::TestWithParam<PieceCase> {};

TEST_P(PieceTest, AStepWithAnswersIsFilledUpToAGoodOne) {
  const PieceCase& c = GetParam();
  SimulatedServer s(
      {.pool = {.num_blocks = 400, .block_tokens = 4}, .max_running = 4, .tokens_per_step = c.tokens_per_step});
  s.scheduler.set_good_rows(c.good_rows);
  s.add({count_from(0, c.tokens_per_step), 3});
  s.add({count_from(2000, 1000), 1});
  EXPECT_EQ(s.step(), (Rows{{1, 0, c.tokens_per_step}}));
  EXPECT_EQ(s.step(), (Rows{{1, c.tokens_per_step, 1}, {2, 0, c.beside_an_answer}}));
  s.step();
  EXPECT_EQ(s.step(), (Rows{{2, 2 * c.beside_an_answer, c.tokens_per_step}}));
  s.run();
}

INSTANTIATE_TEST_SUITE_P(Pieces, PieceTest,
                         testing::Values(PieceCase{256, 0, 64}, PieceCase{256, 30, 64}, PieceCase{256, 101, 100},
                                         PieceCase{256, 5000, 255}, PieceCase{48, 0, 47}, PieceCase{48, 5000, 47}));

TEST(SchedulerTest, PromptsWaitForTheirTurnBesideAnswers) {
  SimulatedServer s({.pool = {.num_blocks = 400, .block_tokens = 4}, .max_running = 8, .tokens_per_step = 256});
  s.add({count_from(0, 4), 50});
  s.step();
  for (int i = 0; i < 3; ++i) s.add({count_from(1000 * (i + 1), 50), 2});
  EXPECT_EQ(s.step(), (Rows{{1, 4, 1}, {2, 0, 50}, {3, 0, 14}}));
  EXPECT_EQ(s.scheduler.num_waiting(), 1);  // its blocks are not taken before it has rows
  EXPECT_EQ(s.step(), (Rows{{1, 5, 1}, {2, 50, 1}, {3, 14, 36}, {4, 0, 28}}));
}

TEST(SchedulerTest, AdmitsByPriorityThenArrivalUpToTheLimit) {
  SimulatedServer s({.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 2, .tokens_per_step = 64});
  for (const int32_t priority : {1, 1, 0, -1})
    s.add({.prompt = {priority + 5}, .max_tokens = 2, .priority = priority});
  s.step();
  EXPECT_EQ(s.scheduler.num_running(), 2);
  EXPECT_EQ(s.scheduler.num_waiting(), 2);
  s.run();
  EXPECT_EQ(s.finished, (std::vector<RequestId>{4, 3, 1, 2}));
}

TEST(SchedulerTest, TakesThePlaceOfWhatIsLessUrgent) {
  SimulatedServer s({.pool = {.num_blocks = 8, .block_tokens = 4}, .max_running = 1, .tokens_per_step = 64});
  s.add({.prompt = count_from(0, 8), .max_tokens = 8, .priority = 1});
  s.step();
  s.add({.prompt = count_from(50, 8), .max_tokens = 3, .priority = 1});
  s.add({.prompt = count_from(100, 8), .max_tokens = 3, .priority = 0});
  s.run();
  EXPECT_EQ(s.finished, (std::vector<RequestId>{3, 1, 2}));
  EXPECT_EQ(s.scheduler.num_preemptions(), 1);
}

TEST(SchedulerTest, LongUrgentPromptsSendNobodyAway) {
  SimulatedServer s({.pool = {.num_blocks = 100, .block_tokens = 4}, .max_running = 8, .tokens_per_step = 8});
  for (int i = 0; i < 3; ++i) s.add({.prompt = {i}, .max_tokens = 30, .priority = 1});
  s.step();
  s.add({.prompt = count_from(0, 50), .max_tokens = 2, .priority = 0});
  s.add({.prompt = count_from(70, 50), .max_tokens = 2, .priority = 0});
  s.run();
  EXPECT_EQ(s.scheduler.num_preemptions(), 0);
  EXPECT_EQ(s.finished, (std::vector<RequestId>{4, 5, 1, 2, 3}));
}

TEST(SchedulerTest, UrgentPromptsPassLongOnes) {
  SimulatedServer s({.pool = {.num_blocks = 100, .block_tokens = 4}, .max_running = 8, .tokens_per_step = 8});
  s.add({.prompt = count_from(0, 90), .max_tokens = 1, .priority = 1});
  s.step();
  s.add({.prompt = count_from(100, 8), .max_tokens = 1, .priority = 0});
  EXPECT_EQ(s.step(), (Rows{{2, 0, 8}}));
}

TEST(SchedulerTest, ServesUsersInTurn) {
  SimulatedServer s({.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 1, .tokens_per_step = 64});
  for (int i = 0; i < 3; ++i) s.add({.prompt = {i}, .max_tokens = 3, .user = "many"});
  s.add({.prompt = {7}, .max_tokens = 3, .user = "one"});
  s.run();
  EXPECT_EQ(s.finished, (std::vector<RequestId>{1, 4, 2, 3}));
}

TEST(SchedulerTest, NobodyIsPassedForEverByNewcomers) {
  SimulatedServer s({.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 1, .tokens_per_step = 64});
  for (int i = 0; i < 3; ++i) s.add({.prompt = {i}, .max_tokens = 5, .user = "many"});
  for (int i = 0; i < 400; ++i) {
    s.add({.prompt = {i}, .max_tokens = 1, .user = fmt::format("new{}", i)});
    s.step();
  }
  EXPECT_NE(std::find(s.finished.begin(), s.finished.end(), 3u), s.finished.end());
}

TEST(SchedulerTest, FindsPrefixesOfOthersButComputesTheLastToken) {
  SimulatedServer s({.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 4, .tokens_per_step = 64});
  const std::vector<int32_t> prompt = count_from(0, 12);
  s.add({prompt, 2});
  s.run();
  s.add({prompt, 2});
  EXPECT_EQ(s.step(), (Rows{{2, 8, 4}}));  // not all three blocks: the last token is always computed
  s.run();
  s.add({count_from(0, 13), 2});
  EXPECT_EQ(s.step(), (Rows{{3, 12, 1}}));
  EXPECT_EQ(s.answers[1], s.answers[2]);
  EXPECT_EQ(s.cached[2], 8);
}

// Prompts and answers of a model with states.
class StatesTest : public testing::Test {
 protected:
  // The rows of the first step.
  Rows ask(std::vector<int32_t> prompt, int64_t max_tokens = 2) {
    last_ = s_.add({std::move(prompt), max_tokens});
    Rows first = s_.step();
    s_.run();
    return first;
  }
  static std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  SimulatedServer s_{
      {.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 2, .tokens_per_step = 64, .num_states = 6}};
  RequestId last_ = 0;
};

TEST_F(StatesTest, APromptIsFoundAgain) {
  EXPECT_EQ(ask(count_from(0, 14)), (Rows{{1, 0, 14}}));
  EXPECT_EQ(ask(count_from(0, 14)), (Rows{{2, 8, 6}}));   // the last tokens may be otherwise in a conversation
  EXPECT_EQ(ask(count_from(0, 13)), (Rows{{3, 12, 1}}));  // but here they were the same
  EXPECT_EQ(ask(count_from(0, 12)), (Rows{{4, 8, 4}}));
  EXPECT_EQ(ask(count_from(0, 8)), (Rows{{5, 0, 8}}));  // nothing is kept behind the one block that it may find
  EXPECT_EQ(ask(count_from(0, 8)), (Rows{{6, 4, 4}}));
}

TEST_F(StatesTest, AConversationGoesOnBehindTheLastAnswer) {
  std::vector<int32_t> text = count_from(0, 10);
  ask(text, 9);
  text = joined(joined(text, s_.answers[last_]), {900, 901});
  EXPECT_EQ(ask(text, 1), (Rows{{2, 16, 5}}));
  EXPECT_EQ(s_.cached[2], 16);
}

// Where a long answer has been is not kept, only its end.
TEST_F(StatesTest, AnAnswerTakesOneStateWithIt) {
  ask(count_from(0, 10), 30);
  EXPECT_EQ(s_.scheduler.states().num_kept(), 2);  // behind the prompt, and behind the answer
  EXPECT_EQ(s_.scheduler.states().num_held(), 0);
}

TEST_F(StatesTest, WhatPromptsShareIsKeptWhenASecondOneComes) {
  const std::vector<int32_t> shared = count_from(0, 17);
  EXPECT_EQ(ask(joined(shared, count_from(100, 12))), (Rows{{1, 0, 29}}));
  EXPECT_EQ(ask(joined(shared, count_from(200, 12))), (Rows{{2, 0, 29}}));
  EXPECT_EQ(ask(joined(shared, count_from(300, 12))), (Rows{{3, 16, 13}}));
}

TEST_F(StatesTest, TheOldestGoesFirst) {
  for (const int32_t first : {0, 100, 200, 300, 400, 500}) ask(count_from(first, 9), 1);
  EXPECT_EQ(ask(count_from(500, 9), 1), (Rows{{7, 4, 5}}));
  EXPECT_EQ(ask(count_from(0, 9), 1), (Rows{{8, 0, 9}}));
}

TEST(SchedulerTest, ComputesEveryRowOfAPromptThatIsScored) {
  SimulatedServer s({.pool = {.num_blocks = 64, .block_tokens = 4}, .max_running = 4, .tokens_per_step = 8});
  s.add({count_from(0, 12), 2});
  s.run();
  s.add({.prompt = count_from(0, 12), .max_tokens = 2, .prompt_logprobs = 0});
  const std::span<const StepPart> plan = s.scheduler.plan();
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].first, 0);
  EXPECT_EQ(plan[0].first_wanted, 0);
}

TEST(SchedulerTest, PreemptsTheLastAndFindsItsWorkAgain) {
  SimulatedServer s({.pool = {.num_blocks = 6, .block_tokens = 4}, .max_running = 2, .tokens_per_step = 64});
  s.add({count_from(0, 6), 14});
  s.add({count_from(100, 6), 14});
  s.run();
  EXPECT_GE(s.scheduler.num_preemptions(), 1);
  EXPECT_EQ(s.finished, (std::vector<RequestId>{1, 2}));
  EXPECT_EQ(s.scheduler.pool().num_used(), 0);
  SimulatedServer alone({.pool = {.num_blocks = 6, .block_tokens = 4}, .max_running = 1, .tokens_per_step = 64});
  alone.add({count_from(0, 6), 14});
  alone.add({count_from(100, 6), 14});
  alone.run();
  EXPECT_EQ(s.answers, alone.answers);
}

TEST(SchedulerTest, CancellationFreesBlocksAtOnce) {
  SimulatedServer s({.pool = {.num_blocks = 8, .block_tokens = 4}, .max_running = 4, .tokens_per_step = 64});
  const RequestId running = s.add({count_from(0, 9), 4}), other = s.add({count_from(50, 9), 4});
  s.step();
  EXPECT_EQ(s.scheduler.pool().num_used(), 6);
  EXPECT_EQ(s.scheduler.num_tokens_held(), 18);
  s.cancel(running);
  EXPECT_EQ(s.scheduler.pool().num_used(), 3);
  EXPECT_EQ(s.scheduler.num_tokens_held(), 9);
  s.cancel(other);
  EXPECT_EQ(s.scheduler.pool().num_used(), 0);
  EXPECT_TRUE(s.step().empty());
}

TEST(SchedulerTest, DraftsSeldomWhereNothingIsAccepted) {
  int32_t draft_token = 5;  // of a vocabulary of one
  int64_t num_draft_tokens = 0;
  SimulatedServer s({.pool = {.num_blocks = 300, .block_tokens = 4},
                     .max_running = 1,
                     .tokens_per_step = 8,
                     .max_draft_tokens = 1,
                     .propose =
                         [&](std::span<const DraftTask> tasks) {
                           for (const DraftTask& task : tasks) task.sequence->draft_tokens = {draft_token};
                           num_draft_tokens += int64_t(tasks.size());
                         }},
                    1);
  s.add({.prompt = {0}, .max_tokens = 1000});
  const auto draft_tokens_of = [&](int64_t steps) {
    const int64_t before = num_draft_tokens;
    for (int64_t i = 0; i < steps; ++i) s.step();
    return num_draft_tokens - before;
  };
  EXPECT_GT(draft_tokens_of(20), 15);
  draft_tokens_of(20);
  EXPECT_EQ(draft_tokens_of(80), 10);
  draft_token = 0;
  draft_tokens_of(40);
  EXPECT_EQ(draft_tokens_of(20), 20);
  EXPECT_GT(s.num_accepted, 20u);
}

TEST(SchedulerTest, RefusesWhatNeverFits) {
  SimulatedServer s({.pool = {.num_blocks = 2, .block_tokens = 4}, .max_running = 4, .tokens_per_step = 64});
  EXPECT_EQ(s.scheduler.most_tokens(), 8);
  EXPECT_THROW(s.add({count_from(0, 9), 1}), Error);
}

struct Load {
  const char* name;
  SchedulerOptions options;
  bool is_tight = true;
  int64_t longest_prompt = 40, longest_answer = 30;
};
class RandomLoadTest : public testing::TestWithParam<Load> {};

TEST_P(RandomLoadTest, EverythingFinishesWithItsOwnAnswer) {
  const Load& load = GetParam();
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  constexpr int32_t kVocab = 2;  // so that prefixes are shared
  SimulatedServer s(load.options, kVocab);
  SimulatedServer alone({.pool = {.num_blocks = 100, .block_tokens = 1}, .max_running = 1}, kVocab);
  std::vector<RequestId> cancelled;
  for (int64_t step = 0; step < 1500; ++step) {
    if (below(3) == 0) {
      Asked asked{.max_tokens = 1 + below(load.longest_answer), .priority = int32_t(below(3))};
      for (int64_t i = 1 + below(load.longest_prompt); i > 0; --i) asked.prompt.push_back(int32_t(below(kVocab)));
      if (below(2)) asked.user = fmt::format("user{}", below(3));
      const RequestId id = s.add(asked);
      ASSERT_EQ(alone.add(asked), id);
      alone.run();
      if (below(10) == 0) cancelled.push_back(id);
    }
    if (!cancelled.empty() && below(4) == 0) {
      s.cancel(cancelled.back());
      cancelled.pop_back();
    }
    s.step();
    const BlockPool& pool = s.scheduler.pool();
    ASSERT_EQ(pool.num_free() + pool.num_kept() + pool.num_used(), pool.num_blocks());
    ASSERT_LE(s.scheduler.num_tokens_held(), pool.num_used() * pool.block_tokens());
  }
  s.run();
  EXPECT_GT(s.finished.size(), 300u);
  for (const RequestId id : s.finished) ASSERT_EQ(s.answers[id], alone.answers[id]) << id;
  EXPECT_EQ(s.scheduler.pool().num_used(), 0);
  EXPECT_EQ(s.scheduler.states().num_held(), 0);
  EXPECT_EQ(s.scheduler.states().num_kept() > 0, load.options.num_states > load.options.max_running);
  EXPECT_EQ(s.scheduler.num_preemptions() > 40, load.is_tight);
  EXPECT_EQ(s.num_accepted > 1000, load.options.max_draft_tokens > 0);
}

// Tokens are told a step late, some answers end before they are as long as they may be, and some rows are computed
// twice.
TEST_P(RandomLoadTest, EverythingFinishesWithItsOwnAnswerAheadOfItsTokens) {
  const Load& load = GetParam();
  if (load.options.max_draft_tokens > 0) GTEST_SKIP() << "draft tokens need to know the tokens before them";
  const bool has_states = load.options.num_states > 0;
  std::mt19937 random(6);
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  constexpr int32_t kVocab = 2;
  SimulatedServer s(load.options, kVocab);
  SimulatedServer alone({.pool = {.num_blocks = 100, .block_tokens = 1}, .max_running = 1}, kVocab);
  s.ends_every = alone.ends_every = 40;
  const auto is_lost = [&] { return !has_states && below(12) == 0; };
  for (int64_t step = 0; step < 1500; ++step) {
    if (below(3) == 0) {
      Asked asked{.max_tokens = 1 + below(load.longest_answer), .priority = int32_t(below(3))};
      for (int64_t i = 1 + below(load.longest_prompt); i > 0; --i) asked.prompt.push_back(int32_t(below(kVocab)));
      s.add(asked), alone.add(asked);
      alone.run();
    }
    s.step_ahead(is_lost);
    const BlockPool& pool = s.scheduler.pool();
    ASSERT_EQ(pool.num_free() + pool.num_kept() + pool.num_used(), pool.num_blocks());
    ASSERT_LE(s.scheduler.num_tokens_held(), pool.num_used() * pool.block_tokens());
  }
  for (int64_t i = 0; i < 10000 && s.scheduler.any(); ++i) s.step_ahead(is_lost);
  EXPECT_FALSE(s.scheduler.any() || s.has_unread());
  EXPECT_GT(s.finished.size(), 400u);
  for (const RequestId id : s.finished) ASSERT_EQ(s.answers[id], alone.answers[id]) << id;
  EXPECT_EQ(s.scheduler.pool().num_used(), 0);
  EXPECT_EQ(s.scheduler.states().num_held(), 0);
  EXPECT_EQ(s.scheduler.num_preemptions() > 20, load.is_tight);
  EXPECT_EQ(s.num_lost > 100, !has_states);
}

INSTANTIATE_TEST_SUITE_P(
    Loads, RandomLoadTest,
    testing::Values(
        Load{"Roomy",
             {.pool = {.num_blocks = 500, .block_tokens = 4}, .max_running = 32, .tokens_per_step = 48},
             false},
        Load{"Tight", {.pool = {.num_blocks = 20, .block_tokens = 4}, .max_running = 16, .tokens_per_step = 32}},
        Load{"Minimal", {.pool = {.num_blocks = 70, .block_tokens = 1}, .max_running = 8, .tokens_per_step = 8}},
        Load{
            "Collisions",
            {.pool = {.num_blocks = 24, .block_tokens = 3, .hash_bits = 2}, .max_running = 9, .tokens_per_step = 20}},
        Load{"NoPrefixes",
             {.pool = {.num_blocks = 20, .block_tokens = 4, .keeps_prefixes = false},
              .max_running = 16,
              .tokens_per_step = 32}},
        Load{"States",
             {.pool = {.num_blocks = 500, .block_tokens = 4},
              .max_running = 32,
              .tokens_per_step = 48,
              .num_states = 160},
             false},
        Load{"TightStates",
             {.pool = {.num_blocks = 20, .block_tokens = 4},
              .max_running = 16,
              .tokens_per_step = 32,
              .num_states = 18}},
        Load{"NoKeptStates",
             {.pool = {.num_blocks = 20, .block_tokens = 4},
              .max_running = 16,
              .tokens_per_step = 32,
              .num_states = 16}},
        Load{"Drafts",
             {.pool = {.num_blocks = 500, .block_tokens = 4},
              .max_running = 32,
              .tokens_per_step = 100,
              .max_draft_tokens = 5},
             false},
        Load{"DraftsWithStates",
             {.pool = {.num_blocks = 500, .block_tokens = 4},
              .max_running = 32,
              .tokens_per_step = 100,
              .num_states = 300,
              .max_draft_tokens = 5},
             false},
        Load{"TightDraftsWithStates",
             {.pool = {.num_blocks = 20, .block_tokens = 4},
              .max_running = 16,
              .tokens_per_step = 32,
              .num_states = 30,
              .max_draft_tokens = 3}},
        Load{"TightDrafts",
             {.pool = {.num_blocks = 20, .block_tokens = 4},
              .max_running = 16,
              .tokens_per_step = 32,
              .max_draft_tokens = 8}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
