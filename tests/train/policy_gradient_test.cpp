// Policy gradients: the published formulas, and slopes that are central differences.
#include "weft/train/policy/policy_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace weft {
namespace {

using Method = PolicyMethod;

TEST(PolicyGradientTest, AdvantagesAreWithinPrompts) {
  PolicyConfig c = PolicyConfig::of(Method::grpo);
  c.answers = 4;
  const std::vector<double> rewards = {1, 0, 0, 1, 0.5, 0.5, 0.5, 0.5};
  const std::vector<double> a = advantages(c, rewards);
  const double deviation = std::sqrt(4 * 0.25 / 3);  // of a sample
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(a[i], (rewards[i] - 0.5) / (deviation + 1e-4), 1e-12);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(a[i], 0);
  c = PolicyConfig::of(Method::dr_grpo);
  c.answers = 4;
  EXPECT_EQ(advantages(c, rewards), (std::vector<double>{0.5, -0.5, -0.5, 0.5, 0, 0, 0, 0}));
}

TEST(PolicyGradientTest, WeightsOfTokens) {
  const std::vector<int64_t> lengths = {2, 6, 0, 4};
  const auto sum_of = [&](const PolicyConfig& c) {
    double sum = 0;
    for (const int64_t n : lengths) sum += double(n) * token_weight(c, n, lengths);
    return sum;
  };
  EXPECT_EQ(token_weight(PolicyConfig::of(Method::grpo), 2, lengths), 0.5);
  EXPECT_EQ(token_weight(PolicyConfig::of(Method::gspo), 4, lengths), 0.25);
  EXPECT_EQ(token_weight(PolicyConfig::of(Method::grpo), 0, lengths), 0);
  EXPECT_NEAR(sum_of(PolicyConfig::of(Method::grpo)), 3, 1e-12);  // each answer that is learned counts alike
  EXPECT_NEAR(sum_of(PolicyConfig::of(Method::dapo)), 4, 1e-12);  // divided by 4 answers: the mean over tokens
  PolicyConfig c = PolicyConfig::of(Method::dr_grpo);
  c.max_tokens = 8;
  EXPECT_EQ(token_weight(c, 6, lengths), 0.125);
}

// torch in float64, by the formulas of TRL's trainer (loss_type "grpo", importance_sampling_level "token" and
// "sequence"), of one answer of weight 1/3.
TEST(PolicyGradientTest, FiguresOfTrl) {
  const std::vector<double> now = {-1.1, -0.3, -2.5}, old = {-1.4, -0.25, -2.0}, reference = {-1.0, -0.5, -2.2};
  PolicyConfig c = PolicyConfig::of(Method::grpo);
  c.beta = 0.04;
  const auto loss = [&](double advantage) {
    return policy_loss(c, {now, old, reference, advantage, 1.0 / 3}, {}).loss;
  };
  double plain = 0, kept = 0;
  for (size_t t = 0; t < 3; ++t) {
    const double r = std::exp(now[t] - old[t]), d = reference[t] - now[t], kl = std::exp(d) - d - 1;
    plain += -std::min(r * 0.7, std::clamp(r, 0.8, 1.2) * 0.7) + 0.04 * kl;
    kept += -std::min(r * -0.7, std::clamp(r, 0.8, 1.2) * -0.7) + 0.04 * kl;
  }
  EXPECT_NEAR(loss(0.7), plain / 3, 1e-12);
  EXPECT_NEAR(loss(-0.7), kept / 3, 1e-12);
  EXPECT_NEAR(loss(0.7), -0.6424938799333859, 1e-12);
  EXPECT_NEAR(loss(-0.7), 0.7245707272009624, 1e-12);
  c = PolicyConfig::of(Method::gspo);
  const double ratio = std::exp((0.3 - 0.05 - 0.5) / 3);
  EXPECT_NEAR(policy_loss(c, {now, old, {}, 0.7, 1.0 / 3}, {}).loss, -ratio * 0.7, 1e-12);
  EXPECT_NEAR(policy_loss(c, {now, old, {}, -0.7, 1.0 / 3}, {}).loss, 0.7 * (1 - 3e-4), 1e-12);
}

struct SlopeCase {
  const char* name;
  Method method;
  double advantage, beta;
  bool has_old;
};
class PolicySlopeTest : public testing::TestWithParam<SlopeCase> {};
INSTANTIATE_TEST_SUITE_P(All, PolicySlopeTest,
                         testing::Values(SlopeCase{"first_step", Method::grpo, 1.3, 0, false},
                                         SlopeCase{"first_step_near", Method::dapo, -0.4, 0.1, false},
                                         SlopeCase{"raised", Method::grpo, 0.9, 0, true},
                                         SlopeCase{"lowered", Method::grpo, -0.9, 0.2, true},
                                         SlopeCase{"further_up", Method::dapo, 0.9, 0, true},
                                         SlopeCase{"by_length", Method::dr_grpo, -1, 0.05, true},
                                         SlopeCase{"sequence_raised", Method::gspo, 0.8, 0, true},
                                         SlopeCase{"sequence_lowered", Method::gspo, -0.8, 0.3, true}),
                         [](const auto& test) { return test.param.name; });

// Without an old model the ratio is 1 whatever the probabilities are: there the slope is that of the model now to the
// same model held still.
TEST_P(PolicySlopeTest, IsACentralDifference) {
  const SlopeCase& p = GetParam();
  PolicyConfig c = PolicyConfig::of(p.method);
  c.beta = p.beta, c.max_tokens = 5;
  const std::vector<double> now = {-1.1, -0.3, -2.5, -0.7}, old = {-1.4, -0.25, -2.0, -0.75};
  const std::vector<double> reference = {-1.0, -0.5, -2.2, -0.1};
  const std::span<const double> near = p.beta > 0 ? std::span<const double>(reference) : std::span<const double>{};
  const std::span<const double> held = p.has_old ? old : now;
  std::vector<double> slopes(4);
  policy_loss(c, {now, p.has_old ? held : std::span<const double>{}, near, p.advantage, 0.25}, slopes);
  constexpr double kStep = 1e-6;
  bool any = false;
  for (size_t t = 0; t < 4; ++t) {
    const auto moved = [&](double by) {
      std::vector<double> logps = now;
      logps[t] += by;
      return policy_loss(c, {logps, held, near, p.advantage, 0.25}, {}).loss;
    };
    EXPECT_NEAR(slopes[t], (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-8) << t;
    any |= slopes[t] != 0;
  }
  EXPECT_TRUE(any || p.method == Method::gspo);
}

TEST(PolicyGradientTest, ClippedTokensAreCounted) {
  const PolicyConfig c = PolicyConfig::of(Method::grpo);
  const std::vector<double> old(4, -1), now = {-1, -0.7, -1.5, -1.1};
  EXPECT_EQ(policy_loss(c, {now, old, {}, 1, 1}, {}).clipped, 1);   // 1.35 > 1.2
  EXPECT_EQ(policy_loss(c, {now, old, {}, -1, 1}, {}).clipped, 1);  // 0.61 < 0.8
  EXPECT_EQ(policy_loss(c, {now, {}, {}, 1, 1}, {}).clipped, 0);
}

}  // namespace
}  // namespace weft
