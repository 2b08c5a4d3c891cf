// StepCost: what it makes of machines that are bound by memory, by their cores, or by both in turn.
#include "weft/serve/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace weft {
namespace {

// Steps of a server: answers, whose number changes, and now and then prompts beside them.
int64_t good_rows(const std::function<double(double rows)>& seconds, double noise = 0, int num_steps = 400) {
  StepCost cost;
  std::mt19937 random(3);
  std::normal_distribution<double> error;
  for (int i = 0; i < num_steps; ++i) {
    const int64_t answers = 4 + i % 13, rows = i % 5 ? answers : answers + 64;
    cost.learn(rows, seconds(double(rows)) * (1 + noise * error(random)));
  }
  return cost.good_rows();
}

TEST(StepCostTest, NineTenthsOfAStepAreItsRows) {
  EXPECT_NEAR(double(good_rows([](double rows) { return 0.040 + 0.004 * rows; })), 90, 1);
  EXPECT_NEAR(double(good_rows([](double rows) { return 0.0007 + 2.8e-6 * rows; })), 2250, 1);
}

TEST(StepCostTest, ManyRowsWhereWeightsComeFromADisk) {
  EXPECT_GE(good_rows([](double rows) { return 5 + 1e-4 * rows; }), 100'000);
  EXPECT_EQ(good_rows([](double) { return 5.0; }), 1 << 20);
}

TEST(StepCostTest, FewRowsWhereRowsAreAllThatCosts) {
  EXPECT_EQ(good_rows([](double rows) { return 0.01 * rows; }), 1);
}

TEST(StepCostTest, RowsThatHideBehindTheWeightsCount) {
  const auto roofline = [](double rows) { return std::max(0.045, 0.0023 * rows); };  // alike at 20 rows
  const int64_t good = good_rows(roofline);
  EXPECT_GE(good, 20);
  EXPECT_LE(good, 256);
}

TEST(StepCostTest, NoiseMovesItLittle) {
  const int64_t good = good_rows([](double rows) { return 0.040 + 0.004 * rows; }, 0.05);
  EXPECT_GE(good, 45);
  EXPECT_LE(good, 180);
}

TEST(StepCostTest, KnowsNothingOfStepsThatAreAlike) {
  StepCost cost;
  EXPECT_EQ(cost.good_rows(), 0);
  for (int i = 0; i < 100; ++i) cost.learn(16 + i % 2, 0.1);
  EXPECT_EQ(cost.good_rows(), 0);
}

TEST(StepCostTest, StepsThatAreAlikeTakeNothingAway) {
  StepCost cost;
  const auto learn = [&](int64_t rows) { cost.learn(rows, 0.040 + 0.004 * double(rows)); };
  for (int i = 0; i < 50; ++i) learn(i % 2 ? 16 : 80);
  for (int i = 0; i < 1000; ++i) learn(16);
  EXPECT_NEAR(double(cost.good_rows()), 90, 1);
}

TEST(StepCostTest, FollowsAMachineThatChanges) {
  StepCost cost;
  for (int i = 0; i < 500; ++i) {
    const double rows = i % 2 ? 16 : 80, fixed = i < 300 ? 0.040 : 0.400;
    cost.learn(int64_t(rows), fixed + 0.004 * rows);
  }
  EXPECT_NEAR(double(cost.good_rows()), 900, 20);
}

}  // namespace
}  // namespace weft
