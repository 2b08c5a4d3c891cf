// The cuda backend chooses the reference's experts, and its gradients are the reference's.
#include <algorithm>
#include <array>

#include "kernels/workbench.h"

namespace weft {
namespace {

struct Rule {
  const char* name;
  RouteRule rule;
  bool has_bias = false, has_factors = false;
};
class CudaRouteTest : public testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Rules, CudaRouteTest,
                         testing::Values(Rule{"softmax", {RouterGate::softmax, true, 1.7f}},
                                         Rule{"scores", {RouterGate::softmax, false, 1.7f}, true},
                                         Rule{"sigmoid", {RouterGate::sigmoid, true, 1.7f}, true},
                                         Rule{"factors", {RouterGate::softmax, true, 1.7f}, false, true},
                                         Rule{"softmax_groups", {RouterGate::softmax, false, 1.7f, 3, 2}},
                                         Rule{"sigmoid_groups", {RouterGate::sigmoid, true, 1.7f, 3, 1}, true},
                                         Rule{"logits", {RouterGate::sigmoid, true, 1.7f, 1, 1, true}, true}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaRouteTest, EqualsReference) {
  const RouteRule rule = GetParam().rule;
  for (auto [tokens, experts, k] : {std::array<int64_t, 3>{0, 4, 2}, {1, 1, 1}, {19, 8, 2}, {9, 61, 7}}) {
    experts *= rule.groups;
    Workbench bench(1, Device::cuda);
    const auto random = [&](Shape shape, std::string_view name) { return bench.random(DType::f32, shape, name); };
    const Tensor logits = random({tokens, experts}, "logits"), bias = random({experts}, "bias");
    const Tensor factors = random({experts}, "factors");
    const Tensor dweights = random({tokens, k}, "dweights"), balance = random({3, experts}, "balance");
    std::vector<int32_t> rows(size_t(tokens), 0);
    for (size_t t = 0; t < rows.size(); ++t) rows[t] = int32_t(t % 3);
    struct Result {
      std::vector<int32_t> experts;
      std::vector<double> scores, weights, weights_of_given, dlogits, dlogits_alone, dfactors;
    };
    const auto run = [&](const Kernels& kernels, bool is_host) {
      const auto there = [&](const Tensor& x) { return is_host ? x : bench.on_device(x); };
      const auto out = [&](Shape shape) { return (is_host ? bench.host : bench.allocator).empty(DType::f32, shape); };
      Result result;
      result.experts.resize(size_t(tokens * k));
      RouteArgs args{
          .scores = out(logits.shape()), .weights = out(dweights.shape()), .experts = result.experts.data()};
      args.logits = there(logits), args.rule = rule;
      if (GetParam().has_bias) args.bias = there(bias);
      if (GetParam().has_factors) args.factors = there(factors);
      kernels.route(bench.stream, args);
      RouteBackwardArgs back{.dlogits = out(logits.shape()), .logits = args.logits, .scores = args.scores};
      back.experts = result.experts.data(), back.k = int(k), back.rule = rule;
      back.dweights = there(dweights), back.factors = args.factors;
      if (back.factors) back.dfactors = out(logits.shape());
      kernels.route_backward(bench.stream, back);
      result.dlogits_alone = bench.values(back.dlogits);
      back.balance = there(balance), back.rows = rows.data(), back.z_scale = 0.3f;
      kernels.route_backward(bench.stream, back);
      result.dlogits = bench.values(back.dlogits);
      if (back.dfactors) result.dfactors = bench.values(back.dfactors);
      result.scores = bench.values(args.scores), result.weights = bench.values(args.weights);
      std::vector<int32_t> given(result.experts.size());
      for (size_t i = 0; i < given.size(); ++i) given[i] = int32_t((int64_t(i) % k + int64_t(i) / k) % experts);
      args.experts = given.data(), args.are_given = true;
      kernels.route(bench.stream, args);
      result.weights_of_given = bench.values(args.weights);
      return result;
    };
    const Result want = run(reference_kernels(), true), got = run(cuda_kernels(), false);
    EXPECT_EQ(got.experts, want.experts);
    expect_near("scores", got.scores, want.scores, 1e-6);
    expect_near("weights", got.weights, want.weights, 1e-5);
    expect_near("weights of given experts", got.weights_of_given, want.weights_of_given, 1e-5);
    expect_near("dlogits", got.dlogits, want.dlogits, 2e-5);
    expect_near("dfactors", got.dfactors, want.dfactors, 1e-5);
    expect_near("dlogits of the weights", got.dlogits_alone, want.dlogits_alone, 2e-5);
  }
}

TEST(CudaRoute, TheDeviceMayKeepTheChoice) {
  Workbench bench(1, Device::cuda);
  const Tensor logits = bench.on_device(bench.random(DType::f32, {3, 8}, "logits"));
  const auto choose = [&](int32_t* experts, const Tensor& chosen) {
    cuda_kernels().route(bench.stream, {.scores = bench.empty(DType::f32, {3, 8}),
                                        .weights = bench.empty(DType::f32, {3, 2}),
                                        .experts = experts,
                                        .chosen = chosen,
                                        .logits = logits});
  };
  std::vector<int32_t> told(6);
  const Tensor kept = bench.empty(DType::i32, {3, 2});
  choose(told.data(), {}), choose(nullptr, kept);
  const Tensor here = bench.on_host(kept);
  EXPECT_EQ(std::vector<int32_t>(here.data<int32_t>(), here.data<int32_t>() + 6), told);
}

TEST(CudaRoute, TakesTheFirstOfEqualsAndDifferentExpertsWhereLogitsAreNoNumbers) {
  Workbench bench(1, Device::cuda);
  const Tensor logits = bench.of(DType::f32, {2, 5}, {NAN, 1, NAN, INFINITY, NAN, 1, 2, 0, 2, 2});
  std::vector<int32_t> experts(6);
  cuda_kernels().route(bench.stream, {.scores = bench.empty(DType::f32, {2, 5}),
                                      .weights = bench.empty(DType::f32, {2, 3}),
                                      .experts = experts.data(),
                                      .logits = bench.on_device(logits)});
  EXPECT_EQ(std::vector<int32_t>(experts.begin() + 3, experts.end()), (std::vector<int32_t>{1, 3, 4}));
  std::sort(experts.begin(), experts.begin() + 3);
  EXPECT_TRUE(std::unique(experts.begin(), experts.begin() + 3) == experts.begin() + 3);
  EXPECT_TRUE(experts[0] >= 0 && experts[2] < 5);
}

}  // namespace
}  // namespace weft
