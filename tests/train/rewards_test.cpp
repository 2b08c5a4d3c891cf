// Rewards: rules on texts, and programs of users.
#include "weft/train/policy/rewards.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/temporary_folder.h"
#include "weft/base/error.h"

namespace weft {
namespace {

struct RuleCase {
  const char *text, *expected;
  double reward;
};

TEST(RewardsTest, TheLastNumberCounts) {
  const RuleCase cases[] = {{"so 3 + 4 = 7", "7", 1},
                            {"so 3 + 4 = 7.", "7", 1},
                            {"7 apples, or 8", "7", 0},
                            {"$1,234.50 in all", "... #### 1234.5", 1},
                            {"It is -12", "-12", 1},
                            {"from 5-12", "12", 1},
                            {"x = -0.50", "-.5", 1},
                            {"007", "7", 1},
                            {"7.000", "7", 1},
                            {"0.0", "-0", 1},
                            {"version 1.2.3", "2.3", 1},
                            {"none", "7", 0},
                            {"7", "none", 0},
                            {"", "", 0},
                            {"100", "10", 0},
                            {"1,000,000", "1000000", 1}};
  for (const RuleCase& c : cases)
    EXPECT_EQ(number_reward(c.text, c.expected), c.reward) << c.text << " | " << c.expected;
}

TEST(RewardsTest, WhatIsBoxedCounts) {
  const RuleCase cases[] = {{"thus \\boxed{42}", "42", 1},
                            {"\\boxed{1} no, \\boxed{42}", "42", 1},
                            {"\\boxed{1} no, \\boxed{42}", "1", 0},
                            {"42", "42", 0},
                            {"\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", 1},
                            {"\\boxed{ \\frac{1} {2} }", "so \\boxed{\\frac{1}{2}}", 1},
                            {"\\boxed{1,000.0}", "1000", 1},
                            {"\\boxed{x = 3}", "3", 0},
                            {"\\boxed{{", "{", 0},
                            {"\\boxed{", "", 0}};
  for (const RuleCase& c : cases)
    EXPECT_EQ(boxed_reward(c.text, c.expected), c.reward) << c.text << " | " << c.expected;
}

std::vector<double> scores(const PolicyConfig& config, const std::vector<std::string>& texts, const Prompt& prompt) {
  std::vector<ScoredAnswer> answers;
  for (const std::string& text : texts) answers.push_back({&prompt, text, text.size() > 5});
  return make_reward(config)->score(answers);
}

TEST(RewardsTest, TextsAreComparedWhole) {
  const Prompt prompt{{1}, " yes\n", "{}"};
  PolicyConfig c = PolicyConfig::of(PolicyMethod::grpo);
  c.reward = RewardKind::exact;
  EXPECT_EQ(scores(c, {"yes", "\tyes ", "yes!", ""}, prompt), (std::vector<double>{1, 1, 0, 0}));
  c.reward = RewardKind::contains;
  EXPECT_EQ(scores(c, {"oh yes!", "no", "yes"}, prompt), (std::vector<double>{1, 0, 1}));
}

PolicyConfig by_program(const std::string& script) {
  PolicyConfig c = PolicyConfig::of(PolicyMethod::grpo);
  c.reward = RewardKind::command, c.command = {"sh", "-c", script}, c.command_timeout_s = 20;
  return c;
}

TEST(RewardsTest, AProgramScores) {
  const Prompt prompt{{1}, "", "{\"prompt\":\"p\",\"level\":3}"};
  // The length of each line: what it is told is seen by it.
  const PolicyConfig c = by_program("while read -r line; do echo \"${#line}.5\"; done");
  const std::vector<double> got = scores(c, {"ab", "a\"b", "longer than five", "\xff"}, prompt);
  const std::string rest = "{\"completion\":\"\",\"cut\":false,\"example\":{\"prompt\":\"p\",\"level\":3}}";
  const auto plain = double(rest.size()) + 0.5;
  EXPECT_EQ(got[0], plain + 2);
  EXPECT_EQ(got[1], plain + 4);       // a backslash
  EXPECT_EQ(got[2], plain + 16 - 1);  // "cut":true
  EXPECT_GT(got[3], plain);           // no UTF-8: another character
}

// More than pipes hold, whether it writes as it reads or at the end; and in two rounds.
TEST(RewardsTest, AProgramMayReadManyLinesBeforeItWrites) {
  const Prompt prompt{{1}, "", "{\"text\":\"" + std::string(1000, 'x') + "\"}"};
  const PolicyConfig c = by_program(
      "z=$(printf '%0300d' 0); while :; do i=0; while [ $i -lt 400 ]; do read -r l || exit 0; i=$((i+1)); done; "
      "i=0; while [ $i -lt 400 ]; do echo \"$i.$z\"; i=$((i+1)); done; done");
  std::vector<ScoredAnswer> answers(400, {&prompt, "a", false});  // more both ways than a pipe holds
  const auto reward = make_reward(c);
  for (int round = 0; round < 2; ++round) {
    const std::vector<double> got = reward->score(answers);
    ASSERT_EQ(got.size(), 400);
    for (size_t i = 0; i < got.size(); i += 17) EXPECT_EQ(got[i], double(i));
  }
}

TEST(RewardsTest, WhatIsWrongWithAProgramIsSaid) {
  const Prompt prompt{{1}, "", "{}"};
  struct Case {
    std::string script;
    const char* what;
  };
  for (const Case& c : {Case{"read -r l; echo good", "wrote \"good\", which is no number"},
                        Case{"read -r l; echo 1; exit 3", "ended (exit status 3) when it had scored 1 of 2"},
                        Case{"read -r l; echo nan; read -r l", "no number"},
                        Case{"true", "ended (exit status 0) when it had scored 0 of 2"}}) {
    try {
      scores(by_program(c.script), {"a", "b"}, prompt);
      ADD_FAILURE() << c.script;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(c.what), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("the reward program [\"sh\""), std::string::npos) << e.what();
    }
  }
  // What it wrote too much would be taken for the next round's.
  const PolicyConfig twice = by_program("while read -r l; do echo 1; echo 2; done");
  const auto reward = make_reward(twice);
  const std::vector<ScoredAnswer> answers(1, {&prompt, "a", false});
  EXPECT_THROW(
      {
        for (int round = 0; round < 50; ++round) {
          reward->score(answers);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      },
      Error);
  PolicyConfig slow = by_program("sleep 30");
  slow.command_timeout_s = 0.2;
  EXPECT_THROW(scores(slow, {"a"}, prompt), Error);
  slow.command = {"/no/such/program"};
  EXPECT_THROW(scores(slow, {"a"}, prompt), Error);
}

}  // namespace
}  // namespace weft
