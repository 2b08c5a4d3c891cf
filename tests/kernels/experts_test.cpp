// Routing and combining of rows: the reference's values and gradients, and the cpu against the reference.
#include "cpu_everywhere.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

TEST(ReferenceRoute, TakesTheFirstOfEqualsAndTheBiasForTheChoiceOnly) {
  Workbench w;
  const Tensor logits = w.of(DType::f64, {2, 4}, {0, 1, 1, 0, 2, 0, 0, 0});
  const Tensor bias = w.of(DType::f64, {4}, {0, 0, 0, 0.9});
  const Tensor scores = w.empty(DType::f64, {2, 4}), weights = w.empty(DType::f64, {2, 2});
  std::vector<int32_t> experts(4);
  RouteArgs args{.scores = scores, .weights = weights, .experts = experts.data(), .logits = logits};
  args.rule = {.gate = RouterGate::softmax, .normalises = true, .scale = 3};
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 2, 0, 1}));
  const double e = std::exp(2.0);
  expect_near("weights", w.values(weights), std::vector<double>{1.5, 1.5, 3 * e / (e + 1), 3 / (e + 1)}, 1e-12);
  args.bias = bias, args.rule = {.gate = RouterGate::sigmoid, .normalises = false, .scale = 2};
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{3, 1, 3, 0}));
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  expect_near("weights", w.values(weights), std::vector<double>{1, 2 * sigmoid(1), 1, 2 * sigmoid(2)}, 1e-12);
}

TEST(ReferenceRoute, LogitsMayStandInPlaceOfScoresForTheChoice) {
  Workbench w;
  const Tensor logits = w.of(DType::f64, {1, 4}, {4, 0, 3, 1}), bias = w.of(DType::f64, {4}, {0, 1.5, 0, 0});
  const Tensor scores = w.empty(DType::f64, {1, 4}), weights = w.empty(DType::f64, {1, 2});
  std::vector<int32_t> experts(2);
  RouteArgs args{.scores = scores, .weights = weights, .experts = experts.data(), .logits = logits, .bias = bias};
  args.rule = {.gate = RouterGate::sigmoid, .normalises = false};
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 0}));
  args.rule.ranks_logits = true;
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 2}));
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  expect_near("weights", w.values(weights), std::vector<double>{sigmoid(4), sigmoid(3)}, 1e-12);
}

TEST(ReferenceRoute, WeighsExpertsThatAreGiven) {
  Workbench w;
  const Tensor scores = w.empty(DType::f64, {1, 4}), weights = w.empty(DType::f64, {1, 2});
  std::vector<int32_t> experts{3, 0};
  RouteArgs args{.scores = scores, .weights = weights, .experts = experts.data()};
  args.logits = w.of(DType::f64, {1, 4}, {0, 9, 9, 1}), args.are_given = true;
  args.rule = {.gate = RouterGate::softmax, .normalises = true, .scale = 3, .groups = 2, .groups_per_token = 1};
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{3, 0}));
  const double e = std::exp(1.0);
  expect_near("weights", w.values(weights), std::vector<double>{3 * e / (e + 1), 3 / (e + 1)}, 1e-12);
  experts[0] = 4;
  EXPECT_THROW(reference_kernels().route(w.stream, args), Error);
}

TEST(ReferenceRoute, TakesExpertsOfTheBestGroups) {
  Workbench w;
  const Tensor logits = w.of(DType::f64, {1, 6}, {3, -9, 2, 1.9, 1, 1.5});
  const Tensor scores = w.empty(DType::f64, {1, 6}), weights = w.empty(DType::f64, {1, 2});
  std::vector<int32_t> experts(2);
  RouteArgs args{.scores = scores, .weights = weights, .experts = experts.data(), .logits = logits};
  args.rule = {.gate = RouterGate::softmax, .groups = 3, .groups_per_token = 1};
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 1}));  // the group of the best expert
  args.rule.gate = RouterGate::sigmoid;
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{2, 3}));  // the group of the two best
  args.rule.groups_per_token = 2;
  reference_kernels().route(w.stream, args);
  EXPECT_EQ(experts, (std::vector<int32_t>{2, 3}));  // the groups of 2, 3 and of 4, 5
}

struct Rule {
  RouterGate gate;
  bool normalises, has_bias;
  int groups = 1, groups_per_token = 1;
  bool has_factors = false, ranks_logits = false;
};
std::string rule_name(const testing::TestParamInfo<Rule>& info) {
  return fmt::format("{}{}{}{}{}{}", info.param.gate == RouterGate::softmax ? "softmax" : "sigmoid",
                     info.param.normalises ? "_normalised" : "", info.param.has_bias ? "_bias" : "",
                     info.param.groups > 1 ? "_groups" : "", info.param.has_factors ? "_factors" : "",
                     info.param.ranks_logits ? "_by_logits" : "");
}
class RouteTest : public testing::TestWithParam<Rule> {
 protected:
  RouteRule rule() const {
    return {.gate = GetParam().gate,
            .normalises = GetParam().normalises,
            .scale = 1.7f,
            .groups = GetParam().groups,
            .groups_per_token = GetParam().groups_per_token,
            .ranks_logits = GetParam().ranks_logits};
  }
  static Tensor factors_of(Workbench& w, DType dtype, int64_t experts) {
    return GetParam().has_factors ? w.random(dtype, {experts}, "factors") : Tensor{};
  }
};
INSTANTIATE_TEST_SUITE_P(
    Rules, RouteTest,
    testing::Values(Rule{RouterGate::softmax, true, false}, Rule{RouterGate::softmax, false, true},
                    Rule{RouterGate::sigmoid, true, true}, Rule{RouterGate::sigmoid, false, false},
                    Rule{RouterGate::softmax, false, false, 3, 2}, Rule{RouterGate::sigmoid, true, true, 3, 1},
                    Rule{RouterGate::softmax, true, false, 1, 1, true},
                    Rule{RouterGate::sigmoid, false, true, 1, 1, true},
                    Rule{RouterGate::sigmoid, true, true, 1, 1, false, true}),
    rule_name);

// What route_backward says it is the gradient of.
TEST_P(RouteTest, ReferenceGradientEqualsDifferences) {
  constexpr int64_t kTokens = 7, kExperts = 6, kPerToken = 2;
  Workbench w;
  const Tensor logits = w.random(DType::f64, {kTokens, kExperts}, "logits");
  const Tensor dweights = w.random(DType::f64, {kTokens, kPerToken}, "dweights");
  const Tensor balance = w.random(DType::f64, {2, kExperts}, "balance");
  const Tensor scores = w.empty(DType::f64, logits.shape()), weights = w.empty(DType::f64, dweights.shape());
  const Tensor factors = factors_of(w, DType::f64, kExperts);
  const Tensor dfactors = factors ? w.empty(DType::f64, logits.shape()) : Tensor{};
  std::vector<int32_t> experts(kTokens * kPerToken), rows{0, 0, 1, 1, 0, 1, 1};
  constexpr float kZScale = 0.25f;
  const auto loss = [&] {
    reference_kernels().route(w.stream,
                              {.scores = scores,
                               .weights = weights,
                               .experts = experts.data(),
                               .logits = logits,
                               .bias = GetParam().has_bias ? w.random(DType::f64, {kExperts}, "bias") : Tensor{},
                               .factors = factors,
                               .rule = rule()});
    double sum = dot(weights, dweights);
    for (int64_t t = 0; t < kTokens; ++t) {
      double total = 0, exponentials = 0, balanced = 0;
      for (int64_t e = 0; e < kExperts; ++e) {
        const double s = scores.data<double>()[t * kExperts + e];
        total += s, exponentials += std::exp(logits.data<double>()[t * kExperts + e]);
        balanced += s * balance.data<double>()[rows[size_t(t)] * kExperts + e];
      }
      sum += balanced / total + double(kZScale) * std::log(exponentials) * std::log(exponentials);
    }
    return sum;
  };
  loss();
  const Tensor dlogits = w.empty(DType::f64, logits.shape());
  reference_kernels().route_backward(w.stream, {.dlogits = dlogits,
                                                .dweights = dweights,
                                                .logits = logits,
                                                .scores = scores,
                                                .experts = experts.data(),
                                                .k = kPerToken,
                                                .balance = balance,
                                                .rows = rows.data(),
                                                .z_scale = kZScale,
                                                .rule = rule(),
                                                .factors = factors,
                                                .dfactors = dfactors});
  expect_gradient("dlogits", logits, dlogits, loss);
  if (!factors) return;
  const Tensor of_all = w.empty(DType::f64, {kExperts});
  reference_kernels().sum_rows(w.stream, of_all, dfactors, false);
  expect_gradient("factors", factors, of_all, loss);
}

TEST_P(RouteTest, CpuEqualsReference) {
  for (auto [tokens, experts, k] :
       {std::array<int64_t, 3>{0, 4, 2}, {1, 1, 1}, {33, 8, 2}, {9, 8, 1}, {300, 61, 7}}) {
    experts *= GetParam().groups;
    Workbench w;
    const Tensor logits = w.random(DType::f32, {tokens, experts}, "logits");
    const Tensor bias = GetParam().has_bias ? w.random(DType::f32, {experts}, "bias") : Tensor{};
    const Tensor factors = factors_of(w, DType::f32, experts);
    const Tensor dweights = w.random(DType::f32, {tokens, k}, "dweights");
    const Tensor balance = w.random(DType::f32, {3, experts}, "balance");
    const Tensor scores = w.empty(DType::f32, logits.shape()), weights = w.empty(DType::f32, dweights.shape());
    const Tensor dlogits = w.empty(DType::f32, logits.shape());
    std::vector<int32_t> chosen(size_t(tokens * k)), rows(static_cast<size_t>(tokens));
    for (size_t t = 0; t < rows.size(); ++t) rows[t] = int32_t(t % 3);
    reference_kernels().route(w.stream, {.scores = scores,
                                         .weights = weights,
                                         .experts = chosen.data(),
                                         .logits = logits,
                                         .bias = bias,
                                         .factors = factors,
                                         .rule = rule()});
    expect_everywhere({{"scores", scores, 1e-6}, {"weights", weights, 1e-5}},
                      [&](Stream& stream, const std::vector<Tensor>& out) {
                        std::vector<int32_t> got(chosen.size());
                        cpu::route(stream, {.scores = out[0],
                                            .weights = out[1],
                                            .experts = got.data(),
                                            .logits = logits,
                                            .bias = bias,
                                            .factors = factors,
                                            .rule = rule()});
                        EXPECT_EQ(got, chosen);
                      });
    std::vector<int32_t> given(chosen.rbegin(), chosen.rend());
    RouteArgs of_given{.scores = scores, .weights = weights, .experts = given.data(), .logits = logits};
    of_given.bias = bias, of_given.factors = factors, of_given.rule = rule(), of_given.are_given = true;
    reference_kernels().route(w.stream, of_given);
    expect_everywhere({{"scores", scores, 1e-6}, {"weights of given experts", weights, 1e-5}},
                      [&](Stream& stream, const std::vector<Tensor>& out) {
                        RouteArgs here = of_given;
                        here.scores = out[0], here.weights = out[1];
                        cpu::route(stream, here);
                      });
    RouteBackwardArgs args{.dlogits = dlogits, .logits = logits, .scores = scores, .experts = chosen.data()};
    args.dweights = dweights, args.k = int(k), args.balance = balance, args.rows = rows.data();
    args.z_scale = 0.3f, args.rule = rule(), args.factors = factors;
    std::vector<ExpectedOutput> expected{{"dlogits", dlogits, 1e-5}};
    if (factors) {
      args.dfactors = w.empty(DType::f32, logits.shape());
      expected.push_back({"dfactors", args.dfactors, 1e-5});
    }
    reference_kernels().route_backward(w.stream, args);
    expect_everywhere(expected, [&](Stream& stream, const std::vector<Tensor>& out) {
      RouteBackwardArgs here = args;
      here.dlogits = out[0];
      if (factors) here.dfactors = out[1];
      cpu::route_backward(stream, here);
    });
  }
}

// An optimizer that divides by a gradient's size would follow what is left of rounding.
TEST(RouteGradientTest, OfOneNormalisedExpertIsExactlyZero) {
  for (const Kernels* kernels : {&cpu_kernels(), &reference_kernels()})
    for (const RouterGate gate : {RouterGate::softmax, RouterGate::sigmoid}) {
      Workbench w;
      constexpr int64_t kTokens = 50, kExperts = 8;
      const Tensor scores = w.empty(DType::f32, {kTokens, kExperts}), weights = w.empty(DType::f32, {kTokens, 1});
      const Tensor logits = w.random(DType::f32, {kTokens, kExperts}, "logits");
      const Tensor dlogits = w.empty(DType::f32, {kTokens, kExperts});
      std::vector<int32_t> chosen(kTokens);
      const RouteRule rule{.gate = gate, .normalises = true, .scale = 2.5f};
      kernels->route(
          w.stream, {.scores = scores, .weights = weights, .experts = chosen.data(), .logits = logits, .rule = rule});
      kernels->route_backward(w.stream, {.dlogits = dlogits,
                                         .dweights = w.random(DType::f32, {kTokens, 1}, "dweights"),
                                         .logits = logits,
                                         .scores = scores,
                                         .experts = chosen.data(),
                                         .k = 1,
                                         .rule = rule});
      EXPECT_EQ(w.values(dlogits), std::vector<double>(size_t(kTokens * kExperts), 0.0)) << kernels->name;
    }
}

TEST(CpuRoute, ChoosesDifferentExpertsAlsoAmongNumbersThatAreNone) {
  Workbench w;
  const Tensor logits = w.of(DType::f32, {1, 5}, {NAN, 1, NAN, INFINITY, NAN});
  const Tensor scores = w.empty(DType::f32, {1, 5}), weights = w.empty(DType::f32, {1, 3});
  std::vector<int32_t> experts(3);
  cpu::route(w.stream, {.scores = scores, .weights = weights, .experts = experts.data(), .logits = logits});
  std::sort(experts.begin(), experts.end());
  EXPECT_TRUE(std::unique(experts.begin(), experts.end()) == experts.end());
  EXPECT_GE(experts.front(), 0);
  EXPECT_LT(experts.back(), 5);
}

class CombineTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, CombineTest, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(CombineTest, CpuEqualsReference) {
  for (const auto& [tokens, cols, k] : {std::array<int64_t, 3>{0, 8, 2}, {5, 7, 1}, {40, 65, 3}, {100, 1000, 2}}) {
    Workbench w;
    // Copies in reverse, every fifth of them dropped.
    std::vector<int32_t> at(size_t(tokens * k), -1);
    int64_t rows = 0;
    for (size_t i = at.size(); i-- > 0;)
      if (i % 5 != 1) at[i] = int32_t(rows++);
    const RowCopies copies{at.data(), k};
    const DType dtype = GetParam();
    const Tensor x = w.random(dtype, {rows, cols}, "x"), dy = w.random(dtype, {tokens, cols}, "dy");
    const Tensor weights = w.random(DType::f32, {tokens, k}, "weights"), y = w.empty(dtype, dy.shape());
    const Tensor dx = w.empty(dtype, x.shape()), dweights = w.empty(DType::f32, weights.shape());
    for (const Tensor& factors : {Tensor(), weights}) {
      reference_kernels().combine_rows(w.stream, y, x, copies, factors);
      expect_everywhere({{"y", y, 2 * rounding_of(dtype)}}, [&](Stream& stream, const std::vector<Tensor>& out) {
        cpu::combine_rows(stream, out[0], x, copies, factors);
      });
    }
    reference_kernels().combine_rows_backward(w.stream, dx, dweights, dy, x, copies, weights);
    expect_everywhere({{"dx", dx, rounding_of(dtype)}, {"dweights", dweights, 1e-4}},
                      [&](Stream& stream, const std::vector<Tensor>& out) {
                        cpu::combine_rows_backward(stream, out[0], out[1], dy, x, copies, weights);
                      });
    expect_everywhere({{"dx alone", dx, rounding_of(dtype)}}, [&](Stream& stream, const std::vector<Tensor>& out) {
      cpu::combine_rows_backward(stream, out[0], {}, dy, {}, copies, weights);
    });
    expect_everywhere({{"dweights alone", dweights, 1e-4}}, [&](Stream& stream, const std::vector<Tensor>& out) {
      cpu::combine_rows_backward(stream, {}, out[0], dy, x, copies, weights);
    });
  }
}

TEST(ReferenceCombine, GradientEqualsDifferences) {
  Workbench w;
  const std::vector<int32_t> at{3, -1, 0, 2, 1, 4};
  const RowCopies copies{at.data(), 2};
  const Tensor x = w.random(DType::f64, {5, 4}, "x"), weights = w.random(DType::f64, {3, 2}, "weights");
  const Tensor dy = w.random(DType::f64, {3, 4}, "dy"), y = w.empty(DType::f64, dy.shape());
  const Tensor dx = w.empty(DType::f64, x.shape()), dweights = w.empty(DType::f64, weights.shape());
  reference_kernels().combine_rows_backward(w.stream, dx, dweights, dy, x, copies, weights);
  const auto loss = [&] {
    reference_kernels().combine_rows(w.stream, y, x, copies, weights);
    return dot(y, dy);
  };
  expect_gradient("dx", x, dx, loss);
  expect_gradient("dweights", weights, dweights, loss);
}

TEST(MetaRoute, CountsAndChoosesNothing) {
  Workbench w(1, Device::meta);
  const auto f32 = [&](Shape shape) { return w.empty(DType::f32, shape); };
  std::vector<int32_t> experts(6, -1);
  meta_kernels().route(
      w.stream, {.scores = f32({3, 4}), .weights = f32({3, 2}), .experts = experts.data(), .logits = f32({3, 4})});
  EXPECT_EQ(experts, std::vector<int32_t>(6, -1));
  EXPECT_EQ(w.stream.cost.bytes, 4 * (2 * 12 + 6));
}

TEST(CombineRows, RefusesACopyThatIsNoRow) {
  Workbench w;
  const Tensor y = w.empty(DType::f32, {2, 3}), x = w.empty(DType::f32, {2, 3});
  const int32_t at[] = {0, 1, -1, 2};
  EXPECT_THROW(reference_kernels().combine_rows(w.stream, y, x, {at, 2}, {}), Error);
}

}  // namespace
}  // namespace weft
