// Recurrences: gradients of the reference against differences, values by hand, and what is refused.
#include <array>

#include "kernels/workbench.h"

namespace weft {
namespace {

constexpr DType kExact = DType::f64;
constexpr std::array kThreeRuns = {TokenRun{0, 4}, TokenRun{4, 5}, TokenRun{5, 7}};
const TokenRuns kAll{kThreeRuns.data(), int(kThreeRuns.size())};

TEST(CausalConvGradientTest, EqualsDifferences) {
  Workbench w;
  const Tensor x = w.random(kExact, {7, 3}, "x"), weight = w.random(kExact, {3, 4}, "weight");
  const Tensor dy = w.random(kExact, {7, 3}, "dy"), y = w.empty(kExact, {7, 3});
  const Tensor dx = w.empty(kExact, {7, 3}), dweight = w.empty(kExact, {3, 4});
  const Tensor bias = w.random(kExact, {3}, "bias"), dbias = w.empty(kExact, {3});
  reference_kernels().causal_conv_backward(
      w.stream,
      {.dx = dx, .dweight = dweight, .dbias = dbias, .dy = dy, .x = x, .weight = weight, .bias = bias, .runs = kAll});
  const auto loss = [&] {
    reference_kernels().causal_conv(
        w.stream, std::array{CausalConvArgs{.y = y, .x = x, .weight = weight, .bias = bias, .runs = kAll}});
    return dot(y, dy);
  };
  expect_gradient("dx", x, dx, loss);
  expect_gradient("dweight", weight, dweight, loss);
  expect_gradient("dbias", bias, dbias, loss);
}

// by_row: each row of a state forgets at a rate of its own.
struct RuleOfStates {
  const char* name;
  StateRule rule;
  bool by_row;
  int64_t rates(int64_t heads, int64_t dk) const { return by_row ? heads * dk : heads; }
};
constexpr RuleOfStates kDelta{"delta", StateRule::delta, false}, kKimi{"kimi_delta", StateRule::delta, true},
    kSelective{"selective", StateRule::selective, false};

class RecurrenceGradientTest : public testing::TestWithParam<RuleOfStates> {};
INSTANTIATE_TEST_SUITE_P(Rules, RecurrenceGradientTest, testing::Values(kDelta, kKimi, kSelective),
                         [](const auto& test) { return test.param.name; });

TEST_P(RecurrenceGradientTest, EqualsDifferences) {
  const bool is_delta = GetParam().rule == StateRule::delta;
  Workbench w;
  const Shape keys{7, 2, 5}, values{7, 4, 3}, gates{7, 4}, heads{4}, decays{7, GetParam().rates(4, 5)};
  const Shape shifts{decays[1]};
  const RecurrenceArgs args{.rule = GetParam().rule,
                            .y = w.empty(kExact, values),
                            .q = w.random(kExact, keys, "q"),
                            .k = w.random(kExact, keys, "k"),
                            .v = w.random(kExact, values, "v"),
                            .a = w.random(kExact, decays, "a"),
                            .b = is_delta ? w.random(kExact, gates, "b") : Tensor(),
                            .beta_scale = 1.75f,
                            .rate = w.random(kExact, heads, "rate"),
                            .shift = w.random(kExact, shifts, "shift"),
                            .skip = is_delta ? Tensor() : w.random(kExact, heads, "skip"),
                            .runs = kAll};
  const Tensor dy = w.random(kExact, values, "dy");
  const RecurrenceBackwardArgs back{.rule = GetParam().rule,
                                    .dq = w.empty(kExact, keys),
                                    .dk = w.empty(kExact, keys),
                                    .dv = w.empty(kExact, values),
                                    .da = w.empty(kExact, decays),
                                    .db = is_delta ? w.empty(kExact, gates) : Tensor(),
                                    .drate = w.empty(kExact, heads),
                                    .dshift = w.empty(kExact, shifts),
                                    .dskip = is_delta ? Tensor() : w.empty(kExact, heads),
                                    .dy = dy,
                                    .q = args.q,
                                    .k = args.k,
                                    .v = args.v,
                                    .a = args.a,
                                    .b = args.b,
                                    .rate = args.rate,
                                    .shift = args.shift,
                                    .skip = args.skip,
                                    .beta_scale = args.beta_scale,
                                    .runs = kAll};
  for (const Tensor& sums : {back.drate, back.dshift, back.dskip})
    if (sums) reference_kernels().fill(w.stream, sums, 0);
  reference_kernels().recurrence_backward(w.stream, back);
  const auto loss = [&] {
    reference_kernels().recurrence(w.stream, args);
    return dot(args.y, dy);
  };
  expect_gradient("dq", args.q, back.dq, loss);
  expect_gradient("dk", args.k, back.dk, loss);
  expect_gradient("dv", args.v, back.dv, loss);
  expect_gradient("da", args.a, back.da, loss);
  if (is_delta) expect_gradient("db", args.b, back.db, loss);
  expect_gradient("drate", args.rate, back.drate, loss);
  expect_gradient("dshift", args.shift, back.dshift, loss);
  if (!is_delta) expect_gradient("dskip", args.skip, back.dskip, loss);
}

// One key of one element, which is 1 as it is long: S = decay S + beta (v - decay S), and y = S.
TEST(GatedDeltaTest, OfOneElementIsAMovingAverage) {
  Workbench w;
  const auto ones = [&](Shape shape, double value) {
    const Tensor t = w.empty(kExact, shape);
    reference_kernels().fill(w.stream, t, float(value));
    return t;
  };
  const Tensor v = w.vector({4, 8}), y = w.empty(kExact, {2, 1, 1}), states = ones({2, 1, 1, 1}, 2);
  constexpr std::array kRun = {TokenRun{0, 2, 1, 0}};
  reference_kernels().recurrence(w.stream, {.y = y,
                                            .q = ones({2, 1, 1}, 1e6),
                                            .k = ones({2, 1, 1}, 1e6),
                                            .v = v.reshape({2, 1, 1}),
                                            .a = ones({2, 1}, 0),
                                            .b = ones({2, 1}, 0),
                                            .rate = ones({1}, 0),
                                            .shift = ones({1}, 0),
                                            .states = states,
                                            .runs = {kRun.data(), 1}});
  // decay = exp(-ln 2) = 1/2, beta = 1/2: 1 -> 1 + 3/2, then 5/4 -> 5/4 + 27/8.
  expect_near("y", w.values(y), std::array{2.5, 4.625}, 1e-9);
  expect_near("states", w.values(states), std::array{4.625, 2.0}, 1e-9);
}

// Keys of two elements, of which a token writes and reads one: decays of 1/2 and 1/4.
TEST(KimiDeltaTest, EachRowForgetsAtItsOwnRate) {
  Workbench w;
  const Tensor v = w.vector({0, 8}), y = w.empty(kExact, {2, 1, 1}), states = w.empty(kExact, {1, 1, 2, 1});
  reference_kernels().fill(w.stream, states, 1);
  const auto zeros = [&](Shape shape) {
    const Tensor t = w.empty(kExact, shape);
    reference_kernels().fill(w.stream, t, 0);
    return t;
  };
  const Tensor second = w.vector({0, 1e6, 0, 1e6}).reshape({2, 1, 2});
  constexpr TokenRun kRun{0, 2, 0, 0};
  reference_kernels().recurrence(w.stream, {.y = y,
                                            .q = second,
                                            .k = second,
                                            .v = v.reshape({2, 1, 1}),
                                            .a = zeros({2, 2}),
                                            .b = zeros({2, 1}),
                                            .rate = zeros({1}),
                                            .shift = w.vector({0, std::log(3.0)}),
                                            .states = states,
                                            .runs = {&kRun, 1}});
  // softplus(0) = ln 2, softplus(ln 3) = ln 4; beta = 1/2: 1 -> 1/4 -> 1/8, then 1/32 -> 1/32 + (8 - 1/32) / 2.
  const double last = 0.5 / 32 + 4;
  expect_near("y", w.values(y), std::array{0.125 / std::sqrt(2.0), last / std::sqrt(2.0)}, 1e-9);
  expect_near("states", w.values(states), std::array{0.25, last}, 1e-9);
}

// step = softplus(0) = ln 2, decay = exp(-ln 2) = 1/2: S = S / 2 + ln 2 k v, and y = q S + skip v.
TEST(SelectiveStateTest, AddsStepsOfWhatItReads) {
  Workbench w;
  const auto all = [&](Shape shape, float value) {
    const Tensor t = w.empty(kExact, shape);
    reference_kernels().fill(w.stream, t, value);
    return t;
  };
  const Tensor v = w.vector({4, 8}), y = w.empty(kExact, {2, 1, 1}), states = all({2, 1, 1, 1}, 2);
  constexpr std::array kRun = {TokenRun{0, 2, 1, 0}};
  reference_kernels().recurrence(w.stream, {.rule = StateRule::selective,
                                            .y = y,
                                            .q = all({2, 1, 1}, 3),
                                            .k = all({2, 1, 1}, 5),
                                            .v = v.reshape({2, 1, 1}),
                                            .a = all({2, 1}, 0),
                                            .rate = all({1}, 0),
                                            .shift = all({1}, 0),
                                            .skip = all({1}, 10),
                                            .states = states,
                                            .runs = {kRun.data(), 1}});
  const double step = std::log(2.0), first = 1 + 20 * step, second = first / 2 + 40 * step;
  expect_near("y", w.values(y), std::array{3 * first + 40, 3 * second + 80}, 1e-9);
  expect_near("states", w.values(states), std::array{second, 2.0}, 1e-9);
}

// Heads as narrow as a part of what a task takes, and as wide as some; of these a token alone stays where states are.
struct StateCut {
  RuleOfStates rule;
  DType dtype;
  int64_t dk, dv;
};
class StateCutTest : public testing::TestWithParam<StateCut> {};
INSTANTIATE_TEST_SUITE_P(
    Sizes, StateCutTest,
    testing::Values(StateCut{kDelta, DType::f32, 33, 128}, StateCut{kDelta, DType::bf16, 16, 192},
                    StateCut{kDelta, DType::f32, 16, 40}, StateCut{kDelta, DType::f32, 8, 130},
                    StateCut{kKimi, DType::bf16, 128, 128}, StateCut{kKimi, DType::f32, 33, 40},
                    StateCut{kSelective, DType::bf16, 128, 64}, StateCut{kSelective, DType::f32, 16, 40}),
    [](const auto& test) { return fmt::format("{}_{}x{}", test.param.rule.name, test.param.dk, test.param.dv); });

TEST_P(StateCutTest, OneTokenAtATimeHasTheBitsOfAll) {
  const auto& [rule, dtype, dk, dv] = GetParam();
  constexpr int64_t kTokens = 7, kHeads = 4;
  Workbench w(2);
  const int64_t rates = rule.rates(kHeads, dk);
  const RecurrenceArgs all{.rule = rule.rule,
                           .y = w.empty(dtype, {kTokens, kHeads, dv}),
                           .q = w.random(dtype, {kTokens, 2, dk}, "q"),
                           .k = w.random(dtype, {kTokens, 2, dk}, "k"),
                           .v = w.random(dtype, {kTokens, kHeads, dv}, "v"),
                           .a = w.random(DType::f32, {kTokens, rates}, "a"),
                           .b = w.random(DType::f32, {kTokens, kHeads}, "b"),
                           .rate = w.random(dtype, {kHeads}, "rate"),
                           .shift = w.random(dtype, {rates}, "shift"),
                           .skip = w.random(dtype, {kHeads}, "skip"),
                           .states = w.random(DType::f32, {3, kHeads, dk, dv}, "states"),
                           .runs = {}};
  RecurrenceArgs one = all;
  one.states = w.copy(all.states), one.y = w.empty(dtype, all.y.shape());
  constexpr TokenRun kAllTokens{0, kTokens, -1, 1};
  RecurrenceArgs args = all;
  args.runs = {&kAllTokens, 1};
  cpu_kernels().recurrence(w.stream, args);
  for (int64_t t = 0; t < kTokens; ++t) {  // by turns to a state of another number and to the same
    const std::array<int32_t, 8> at{-1, 0, 0, 2, 2, 1, 0, 1};
    const TokenRun run{0, 1, at[size_t(t)], at[size_t(t + 1)]};
    RecurrenceArgs token = one;
    for (Tensor* x : {&token.y, &token.q, &token.k, &token.v, &token.a, &token.b}) *x = x->slice_rows(t, 1);
    token.runs = {&run, 1};
    cpu_kernels().recurrence(w.stream, token);
  }
  EXPECT_EQ(w.values(one.y), w.values(all.y));
  EXPECT_EQ(w.values(one.states.slice_rows(1, 1)), w.values(all.states.slice_rows(1, 1)));
}

struct SpoiltRuns {
  const char* name;
  std::array<TokenRun, 2> runs;
};
class TokenRunsTest : public testing::TestWithParam<SpoiltRuns> {};
INSTANTIATE_TEST_SUITE_P(Runs, TokenRunsTest,
                         testing::Values(SpoiltRuns{"gap", {{{0, 2}, {3, 7}}}},
                                         SpoiltRuns{"overlap", {{{0, 4}, {3, 7}}}},
                                         SpoiltRuns{"backwards", {{{0, 8}, {8, 7}}}},
                                         SpoiltRuns{"few", {{{0, 2}, {2, 6}}}},
                                         SpoiltRuns{"no_such_state", {{{0, 2, 0, 0}, {2, 7, 1, -1}}}},
                                         SpoiltRuns{"below_none", {{{0, 2, -2, 0}, {2, 7}}}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(TokenRunsTest, AreRefused) {
  const TokenRuns runs{GetParam().runs.data(), 2};
  for (const Kernels* kernels : {&cpu_kernels(), &reference_kernels(), &meta_kernels()}) {
    Workbench w;
    const auto f32 = [&](Shape shape) { return w.empty(DType::f32, shape); };
    const CausalConvArgs conv{
        .y = f32({7, 3}), .x = f32({7, 3}), .weight = f32({3, 4}), .states = f32({1, 3, 3}), .runs = runs};
    EXPECT_THROW(kernels->causal_conv(w.stream, std::array{conv}), Error) << kernels->name;
    const RecurrenceArgs delta{.y = f32({7, 2, 4}),
                               .q = f32({7, 1, 3}),
                               .k = f32({7, 1, 3}),
                               .v = f32({7, 2, 4}),
                               .a = f32({7, 2}),
                               .b = f32({7, 2}),
                               .rate = f32({2}),
                               .shift = f32({2}),
                               .states = f32({1, 2, 3, 4}),
                               .runs = runs};
    EXPECT_THROW(kernels->recurrence(w.stream, delta), Error) << kernels->name;
  }
}

}  // namespace
}  // namespace weft
