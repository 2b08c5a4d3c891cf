// token_loss against plain loops in float64, whole and on ranks that cut the vocabulary.
#include "weft/parallel/token_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/workbench.h"
#include "support/rank.h"
#include "weft/comm/single/single.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/parallel/score_loss.h"

namespace weft {
namespace {

constexpr int64_t kRows = 9, kVocab = 11, kWidth = 5;
const std::vector<int32_t> kTargets{-1, 3, 10, -1, -1, 0, 5, 3, -1};
constexpr float kGradScale = 0.5f;

struct Head {
  const char* name;
  float softcap, temperature;
  bool has_bias = false;
};

// log softmax(cap(x wᵀ + b) / t) of each row's target; 0 without one.
std::vector<double> log_probabilities(const Tensor& x, const Tensor& w, const Tensor& b, const Head& head) {
  std::vector<double> all(size_t(kRows), 0.0);
  for (int64_t t = 0; t < kRows; ++t) {
    if (kTargets[size_t(t)] < 0) continue;
    double sum = 0, target = 0;
    for (int64_t v = 0; v < kVocab; ++v) {
      double dot = head.has_bias ? b.data<double>()[v] : 0;
      for (int64_t i = 0; i < kWidth; ++i) dot += x.data<double>()[t * kWidth + i] * w.data<double>()[v * kWidth + i];
      if (head.softcap > 0) dot = double(head.softcap) * std::tanh(dot / double(head.softcap));
      dot /= double(head.temperature);
      sum += std::exp(dot);
      if (v == kTargets[size_t(t)]) target = dot;
    }
    all[size_t(t)] = target - std::log(sum);
  }
  return all;
}

// Each token's log-probability counts in a way of its own.
double rule(std::span<const double> logps, std::span<double> dlogps) {
  double loss = 0;
  for (size_t t = 0; t < logps.size(); ++t) {
    const double weight = 1 + double(t) - 4 * double(t == 6);
    loss += weight * logps[t] * logps[t];
    if (!dlogps.empty()) dlogps[t] = 2 * weight * logps[t];
  }
  return loss;
}

class TokenLossTest : public testing::TestWithParam<std::tuple<Head, int>> {};
INSTANTIATE_TEST_SUITE_P(
    Heads, TokenLossTest,
    testing::Combine(testing::Values(Head{"plain", 0, 1}, Head{"warm", 0, 2}, Head{"capped", 2, 1},
                                     Head{"capped_and_cool", 3, 0.5f}, Head{"biased", 0, 2, true},
                                     Head{"biased_and_capped", 2, 1, true}),
                     testing::Values(1, 2, 3)),
    [](const auto& test) { return fmt::format("{}_tp{}", std::get<0>(test.param).name, std::get<1>(test.param)); });

TEST_P(TokenLossTest, EqualsPlainLoopsAndCentralDifferences) {
  const auto& [head, ranks] = GetParam();
  run_ranks(ranks, [&](Communicator& world) {
    TestRank rank(reference_kernels());
    const TensorParallel tensor(world, false);
    const Cut mine = tensor.cut(kVocab);
    const Tensor whole = rank.normal(DType::f64, {kVocab, kWidth}, "weight");
    Placement placement(Shape{kVocab, kWidth});
    Param weight("head.weight", placement.cut(0, mine), Init::zeros());
    weight.value = whole.slice_rows(mine.begin, mine.count);
    weight.grad = rank.context.empty(DType::f64, weight.shape);
    const Tensor whole_bias = rank.normal(DType::f64, {kVocab}, "bias");
    Placement of_bias(Shape{kVocab});
    Param bias("head.bias", of_bias.cut(0, mine), Init::zeros());
    bias.value = whole_bias.slice_rows(mine.begin, mine.count);
    bias.grad = rank.context.empty(DType::f64, bias.shape);
    const Tensor x = rank.normal(DType::f64, {kRows, kWidth}, "x");
    const auto want = [&] { return rule(log_probabilities(x, whole, whole_bias, head), {}); };

    Tape tape;
    rank.context.tape = &tape;
    const Var in = tape.leaf(rank.context, x);
    const TokenRule of_tokens = rule;
    const Var loss = token_loss(tensor, {&weight, head.has_bias ? &bias : nullptr, head.softcap}, head.temperature,
                                kTargets.data(), of_tokens, kGradScale, in);
    EXPECT_NEAR(*loss.value.data<double>(), want(), 1e-10);
    const Tensor dy = rank.context.empty_like(loss.value);
    rank.context.kernels.fill(rank.stream, dy, 1);
    tape.backward(loss, dy);
    rank.context.tape = nullptr;
    const Tensor dx = tape.grad(in);  // with what the other ranks' columns say
    const auto scaled = [&] { return double(kGradScale) * want(); };
    expect_gradient("x", x, dx, scaled);
    expect_gradient("weight", weight.value, weight.grad, scaled);  // its rows lie in the whole
    if (head.has_bias) expect_gradient("bias", bias.value, bias.grad, scaled);
  });
}

// Of a head that scores texts, which every rank has whole: scores of targets, as they are.
class ScoreLossTest : public testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ScoreLossTest, testing::Combine(testing::Values(1, 2, 3), testing::Bool()),
                         [](const auto& test) {
                           return fmt::format("tp{}{}", std::get<0>(test.param),
                                              std::get<1>(test.param) ? "_by_sequence" : "");
                         });

TEST_P(ScoreLossTest, EqualsPlainLoopsAndCentralDifferences) {
  const auto [ranks, is_by_sequence] = GetParam();
  run_ranks(ranks, [&](Communicator& world) {
    TestRank rank(reference_kernels());
    const TensorParallel tensor(world, false);
    Param weight(std::string("score.weight"), tensor.replicated_inside({kVocab, kWidth}), Init::zeros());
    weight.value = rank.normal(DType::f64, weight.shape, "weight");
    weight.grad = rank.context.empty(DType::f64, weight.shape);
    const Tensor x = rank.normal(DType::f64, {kRows, kWidth}, "x");
    const auto want = [&] {
      std::vector<double> scores(size_t(kRows), 0.0);
      for (int64_t t = 0; t < kRows; ++t)
        for (int64_t i = 0; i < kWidth && kTargets[size_t(t)] >= 0; ++i)
          scores[size_t(t)] +=
              x.data<double>()[t * kWidth + i] * weight.value.data<double>()[kTargets[size_t(t)] * kWidth + i];
      return rule(scores, {});
    };
    const HeadView head{.weight = &weight, .scores_texts = true};
    const TokenRule of_rows = rule;
    std::vector<SequencePart> rows;
    for (int64_t t = 0; t < kRows; ++t) rows.push_back({t, t, 1});
    const auto alone = make_single_communicator();

    Tape tape;
    rank.context.tape = &tape;
    const Var in = tape.leaf(rank.context, x);
    const Var loss = is_by_sequence
                         ? sequence_loss(tensor, head, kTargets.data(), rows, kRows, *alone, of_rows, kGradScale, in)
                         : score_loss(tensor, head, kTargets.data(), of_rows, kGradScale, in);
    EXPECT_NEAR(*loss.value.data<double>(), want(), 1e-10);
    const Tensor dy = rank.context.empty_like(loss.value);
    rank.context.kernels.fill(rank.stream, dy, 1);
    tape.backward(loss, dy);
    rank.context.tape = nullptr;
    const auto scaled = [&] { return double(kGradScale) * want(); };
    expect_gradient("x", x, tape.grad(in), scaled);  // once, however many ranks make the scores
    EXPECT_EQ(weight.has_grad(), world.rank() == 0);
    if (weight.has_grad()) expect_gradient("weight", weight.value, weight.grad, scaled);
  });
}

// Sums over the tokens of sequences, those without a target among them, wherever they are.
TEST(SequenceLossTest, RulesSeeSums) {
  TestRank rank(reference_kernels());
  Param weight("head.weight", Shape{kVocab, kWidth}, Init::zeros());
  weight.value = rank.normal(DType::f64, weight.shape, "weight");
  weight.grad = rank.context.empty(DType::f64, weight.shape);
  const Tensor x = rank.normal(DType::f64, {kRows, kWidth}, "x");
  const std::vector<double> each = log_probabilities(x, weight.value, {}, {"", 0, 1});
  const auto alone = make_single_communicator();
  const std::vector<SequencePart> parts = {{0, 0, 4}, {1, 4, 1}, {2, 5, 4}};
  std::vector<double> seen;
  const SequenceRule keep = [&](std::span<const double> logps, std::span<double>) {
    seen.assign(logps.begin(), logps.end());
    return 7.0;
  };
  const Var loss =
      sequence_loss(TensorParallel(), {&weight}, kTargets.data(), parts, 3, *alone, keep, 0, {x, &rank.context});
  EXPECT_EQ(*loss.value.data<double>(), 7);
  ASSERT_EQ(seen.size(), 3);
  EXPECT_NEAR(seen[0], each[1] + each[2], 1e-12);
  EXPECT_EQ(seen[1], 0);
  EXPECT_NEAR(seen[2], each[5] + each[6] + each[7], 1e-12);
}

// Each of two ranks has the same tokens, as parts of sequences whose other part is the other's.
TEST(SequenceLossTest, SequencesAreCutOverRanks) {
  std::array<std::vector<double>, 2> seen;
  std::array<double, 2> losses{};
  std::vector<double> each;
  run_ranks(2, [&](Communicator& world) {
    TestRank rank(reference_kernels());
    Param weight("head.weight", Shape{kVocab, kWidth}, Init::zeros());
    weight.value = rank.normal(DType::f64, weight.shape, "weight");
    weight.grad = rank.context.empty(DType::f64, weight.shape);
    const Tensor x = rank.normal(DType::f64, {kRows, kWidth}, "x");
    if (world.rank() == 0) each = log_probabilities(x, weight.value, {}, {"", 0, 1});
    const std::vector<SequencePart> parts =
        world.rank() == 0 ? std::vector<SequencePart>{{0, 0, 3}, {1, 5, 1}} : std::vector<SequencePart>{{1, 6, 2}};
    const SequenceRule keep = [&](std::span<const double> logps, std::span<double>) {
      seen[size_t(world.rank())].assign(logps.begin(), logps.end());
      return 7.0;
    };
    const Var loss =
        sequence_loss(TensorParallel(), {&weight}, kTargets.data(), parts, 2, world, keep, 0, {x, &rank.context});
    losses[size_t(world.rank())] = *loss.value.data<double>();
  });
  EXPECT_EQ(losses, (std::array<double, 2>{7, 0}));  // counted once
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_NEAR(seen[0][0], each[1] + each[2], 1e-12);
  EXPECT_NEAR(seen[0][1], each[5] + each[6] + each[7], 1e-12);
}

}  // namespace
}  // namespace weft
