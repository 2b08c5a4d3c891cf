// Plans of served models: what follows from one layout, and which is chosen.
#include "weft/plan/serve_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/plan/machine_ranks.h"

namespace weft::plan {
namespace {

// As wide as Llama-3-8B with an eighth of its layers, so that traces are short.
ModelConfig model(int64_t layers = 4, int64_t kv_heads = 8) {
  ModelConfig m = family_defaults("llama");
  m.layers = layers, m.hidden = 4096, m.heads = 32, m.kv_heads = kv_heads, m.ffn = 14336, m.vocab = 128256;
  m.context = 8192;
  complete(m);
  return m;
}

ServeRequest request_for(const ModelConfig& config, const std::string& cluster = "h100-sxm") {
  return {.model = {.config = config}, .cluster = parse_cluster(cluster), .max_running = 64};
}
ServePlan plan_of(const ServeRequest& q, const MeshShape& mesh = {}) { return plan_serving(q, mesh); }

TEST(ServePlanTest, MoreTensorParallelRanksHoldLessEachAndAreFaster) {
  const ServeRequest q = request_for(model());
  ServePlan before = plan_of(q);
  for (const int tp : {2, 4}) {
    const ServePlan p = plan_of(q, {.tp = tp});
    // Norms and rotary tables are on all of them.
    EXPECT_NEAR(double(p.stages[0].weights), double(before.stages[0].weights) / 2,
                0.02 * double(before.stages[0].weights));
    EXPECT_GT(p.cache_tokens, 2 * before.cache_tokens);
    EXPECT_EQ(p.cache_bytes_per_token, before.cache_bytes_per_token);
    EXPECT_LT(p.batches[0].step.step_s, before.batches[0].step.step_s);
    EXPECT_GT(p.batches[0].step.step_s, before.batches[0].step.step_s / 2);  // collectives are not free
    before = p;
  }
}

TEST(ServePlanTest, TwiceTheKeyValueHeadsHalveTheRoom) {
  const ServePlan few = plan_of(request_for(model(4, 8))), many = plan_of(request_for(model(4, 16)));
  EXPECT_EQ(many.cache_bytes_per_token, 2 * few.cache_bytes_per_token);
  EXPECT_NEAR(double(many.cache_tokens), double(few.cache_tokens) / 2, 0.02 * double(few.cache_tokens));
}

TEST(ServePlanTest, StagesShareMemoryAndAddMessages) {
  const ServeRequest q = request_for(model());
  const ServePlan one = plan_of(q), two = plan_of(q, {.pp = 2});
  ASSERT_EQ(two.stages.size(), 2u);
  EXPECT_NEAR(double(two.stages[0].weights + two.stages[1].weights), double(one.stages[0].weights),
              0.01 * double(one.stages[0].weights));
  const ServeTime t = two.batches[0].step;
  EXPECT_GT(t.links_s[size_t(Axis::pp)], 0);
  // One stage works at a time.
  EXPECT_GT(t.step_s, one.batches[0].step.step_s);
  EXPECT_LT(t.step_s, 1.2 * one.batches[0].step.step_s);
}

// Each has all weights and 1 / cp of the keys; a token of an answer is computed on one of them, which gets the
// others' keys.
TEST(ServePlanTest, RanksAlongContextShareTheCacheAndThePrompt) {
  ServeRequest q = request_for(model());
  q.input_len = 7000;
  const ServePlan one = plan_of(q), two = plan_of(q, {.cp = 2});
  EXPECT_EQ(two.stages[0].weights, one.stages[0].weights);
  EXPECT_EQ(two.cache_bytes_per_token, one.cache_bytes_per_token);
  EXPECT_NEAR(double(two.cache_tokens), 2 * double(one.cache_tokens), 0.05 * double(one.cache_tokens));
  EXPECT_LT(two.ttft_s, 0.8 * one.ttft_s);
  EXPECT_GT(two.ttft_s, 0.5 * one.ttft_s);  // of causal attention the last rank has more than half
  EXPECT_GT(two.batches[0].step.links_s[size_t(Axis::cp)], 0);
  EXPECT_GT(two.batches[0].step.step_s, one.batches[0].step.step_s);
}

TEST(ServePlanTest, LargerBatchesGiveMoreTokensToEachOfWhomLess) {
  const ServePlan p = plan_of(request_for(model()));
  ASSERT_GT(p.batches.size(), 4u);
  for (size_t i = 1; i < p.batches.size(); ++i) {
    EXPECT_GE(p.batches[i].step.step_s, p.batches[i - 1].step.step_s);
    EXPECT_GT(p.batches[i].tokens_per_s, p.batches[i - 1].tokens_per_s);
    EXPECT_LE(p.batches[i].user_tokens_per_s, p.batches[i - 1].user_tokens_per_s);
  }
  EXPECT_EQ(p.batches.back().batch, 64);
}

// The parts of a step are all of it, also over stages and ranks.
TEST(ServePlanTest, PartsAddUpToTheStep) {
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.pp = 2}, MeshShape{.tp = 4}, MeshShape{.pp = 2, .tp = 2}}) {
    const ServePlan p = plan_of(request_for(model()), mesh);
    for (const ServeTime& t : {p.batches[0].step, p.batches.back().loaded, p.prefill}) {
      double sum = 0;
      for (const auto& [name, seconds] : t.parts()) sum += seconds;
      EXPECT_NEAR(sum, t.step_s, 0.01 * t.step_s) << mesh.pp << mesh.tp;
    }
  }
}

// A token reads all weights but the embedding once: no less than their bytes take, and not much more.
TEST(ServePlanTest, OneAnswerIsBoundByItsWeights) {
  const ServeRequest q = request_for(model());
  const ServePlan p = plan_of(q);
  const Hardware& h = q.cluster.hardware;
  const double embedding = double(128256) * 4096 * 2;
  const double least = (double(p.stages[0].weights) - embedding) / (h.memory_bytes_per_s * h.memory_reached);
  EXPECT_GE(p.batches[0].step.step_s, least);
  EXPECT_LT(p.batches[0].step.step_s, 1.5 * least);
  EXPECT_NE(p.batches[0].step.bound().find("reading weights"), std::string::npos) << p.batches[0].step.bound();
  EXPECT_NE(p.prefill.bound().find("computing"), std::string::npos) << p.prefill.bound();
}

// Products in fp8 cast their operands; a single token's still wait for weights, and a prompt's for the cores.
TEST(ServePlanTest, OneAnswerIsBoundByItsWeightsInFp8Too) {
  ServeRequest q = request_for(model());
  q.stack.has_fp8 = true;
  for (const char* weights : {"none", "fp8"}) {
    q.model.blocks = parse_block_choice(weights);
    const ServePlan p = plan_of(q);
    EXPECT_TRUE(p.batches[0].step.bound().starts_with("reading weights")) << weights << p.batches[0].step.bound();
    EXPECT_TRUE(p.prefill.bound().starts_with("computing")) << weights << p.prefill.bound();
  }
}

struct Rounded {
  const char* quantize;
  double bits;
};
class ServedBitsTest : public testing::TestWithParam<Rounded> {};
TEST_P(ServedBitsTest, TakeTheirPartOfMemoryAndTime) {
  ServeRequest q = request_for(model());
  const ServePlan plain = plan_of(q);
  q.model.blocks = parse_block_choice(GetParam().quantize);
  const ServePlan p = plan_of(q);
  // The embedding stays in 16 bits.
  const double embedding = double(128256) * 4096 * 2;
  const double part = (double(p.stages[0].weights) - embedding) / (double(plain.stages[0].weights) - embedding);
  EXPECT_NEAR(part, GetParam().bits / 16, 0.01);
  EXPECT_LT(p.batches[0].step.step_s, plain.batches[0].step.step_s);
  EXPECT_GT(p.cache_tokens, plain.cache_tokens);
}
INSTANTIATE_TEST_SUITE_P(Types, ServedBitsTest,
                         testing::Values(Rounded{"q8_0", 8.5}, Rounded{"int8", 8.25}, Rounded{"fp8", 8.25},
                                         Rounded{"q6_k", 6.5625}, Rounded{"q5_k", 5.5}, Rounded{"q4_k", 4.5},
                                         Rounded{"nf4", 4.5}),
                         [](const auto& i) { return std::string(i.param.quantize); });

// Products of few rows, which are what answers wait for: GB/s that an H100 was measured to reach with the launch, the
// median over shapes with n and k from `least` to twice that. Source: the database of NVIDIA's aiconfigurator.
struct FewRows {
  int rows, least, measured_gb_s;
};
class FewRowsTest : public testing::TestWithParam<FewRows> {};
TEST_P(FewRowsTest, TakeWhatTheyWereMeasuredToTake) {
  const FewRows& c = GetParam();
  const CostModel costs(find_hardware("h100-sxm"), {});
  std::vector<double> rates;
  for (const int n : {c.least, c.least * 3 / 2, c.least * 2})
    for (const int k : {c.least, c.least * 3 / 2, c.least * 2}) {
      const double m = c.rows, bytes = 2 * (m * n + m * k + double(n) * k);
      rates.push_back(bytes / (costs.matmul_s(m, n, k, MatmulType::bf16, bytes) + costs.launch_s()) / 1e9);
    }
  std::ranges::nth_element(rates, rates.begin() + 4);
  EXPECT_NEAR(rates[4], c.measured_gb_s, 0.1 * c.measured_gb_s);
}
INSTANTIATE_TEST_SUITE_P(H100, FewRowsTest,
                         testing::Values(FewRows{1, 1024, 1004}, FewRows{1, 4096, 2429}, FewRows{1, 8192, 2831},
                                         FewRows{16, 1024, 1012}, FewRows{16, 4096, 2434}, FewRows{16, 8192, 2797},
                                         FewRows{64, 1024, 1031}, FewRows{64, 4096, 2411}, FewRows{64, 8192, 2767},
                                         FewRows{128, 1024, 993}, FewRows{128, 4096, 2395}, FewRows{128, 8192, 2742}),
                         [](const auto& i) { return fmt::format("rows{}_from{}", i.param.rows, i.param.least); });

// Leviathan et al., 2023: equation 1.
TEST(ServePlanTest, SpeculationGainsWhatItExpects) {
  ServeRequest q = request_for(model(8));
  q.draft = {.model = plan::ServedModel{.config = model(1)}, .draft_tokens = 4, .acceptance = 0.8};
  const ServePlan p = plan_of(q);
  ASSERT_FALSE(p.speculation.empty());
  const Speculation& s = p.speculation.front();
  EXPECT_NEAR(s.tokens_per_step, 1 + 0.8 + 0.64 + 0.512 + 0.4096, 1e-9);
  EXPECT_NEAR(s.gain, s.tokens_per_step * p.batches[0].step.step_s / (s.draft_s + s.verify_s), 1e-9);
  EXPECT_GE(s.verify_s, p.batches[0].step.step_s);
  q.draft->acceptance = 0;
  EXPECT_LT(plan_of(q).speculation.front().gain, 1);  // draft tokens that are never accepted only cost
  q.draft->acceptance = 1;
  EXPECT_EQ(plan_of(q).speculation.front().tokens_per_step, 5);
}

// The model's own part: its weights and its layer of the cache lie on the last stage, a draft token costs about a
// layer and a head, and the rows of the step before are a few more.
TEST(ServePlanTest, OwnPartDraftsAtTheCostOfALayer) {
  ModelConfig config = model(8);
  const int64_t without = config.num_params();
  const ServePlan alone = plan_of(request_for(config));
  config.mtp_layers = 1;
  ServeRequest q = request_for(config);
  q.draft = {.draft_tokens = 3, .acceptance = 0.8};
  const ServePlan p = plan_of(q);
  const int64_t part = config.num_params() - without;
  EXPECT_EQ(p.cache_bytes_per_token * 8, alone.cache_bytes_per_token * 9);
  EXPECT_NEAR(double(p.stages.back().weights - alone.stages.back().weights), 2.0 * double(part), 0.05 * double(part));
  ASSERT_FALSE(p.speculation.empty());
  const Speculation& s = p.speculation.front();
  EXPECT_GT(s.draft_s, 3 * p.batches[0].step.step_s / 9);
  EXPECT_LT(s.draft_s, 3 * p.batches[0].step.step_s / 3);
  q.draft->model = plan::ServedModel{.config = model(8)};
  EXPECT_LT(s.draft_s, plan_of(q).speculation.front().draft_s / 2);
}

TEST(ServePlanTest, RefusesTextsLongerThanTheContext) {
  ServeRequest q = request_for(model());
  q.input_len = 8000, q.output_len = 200;
  EXPECT_THROW(plan_of(q), UsageError);
}

ServeSearchRequest serving_of(const ModelConfig& config, const std::string& cluster, ServeTarget target) {
  return {.serve = request_for(config, cluster), .quantize = {"auto", "int8", "q4_k"}, .target = target};
}

TEST(ServeSearchTest, LatencyCutsLayersAndThroughputMakesReplicas) {
  const ServeSearchResult fast = search_serving(serving_of(model(), "4xh100-sxm", ServeTarget::latency));
  const ServeSearchResult many = search_serving(serving_of(model(), "4xh100-sxm", ServeTarget::throughput));
  ASSERT_FALSE(fast.ranked.empty() || many.ranked.empty());
  EXPECT_GT(fast.ranked[0].plan.mesh.tp, 1);
  EXPECT_EQ(many.ranked[0].plan.replicas, 4);
  EXPECT_EQ(fast.ranked[0].quantize, "auto");  // what fits is not rounded
  EXPECT_EQ(fast.more_rounded.size(), 2u);
  for (size_t i = 1; i < fast.ranked.size(); ++i) {
    EXPECT_GE(fast.ranked[i].batch().step.step_s, fast.ranked[i - 1].batch().step.step_s);
    EXPECT_FALSE(fast.ranked[i].loses.empty());
  }
}

TEST(ServeSearchTest, WhatDoesNotFitIsRoundedAndSaysSo) {
  const ServeSearchResult found = search_serving(serving_of(model(64), "1xrtx4090", ServeTarget::latency));
  ASSERT_FALSE(found.ranked.empty());
  EXPECT_EQ(found.ranked[0].quantize, "int8");
  ASSERT_TRUE(found.nearest);
  EXPECT_EQ(found.nearest->quantize, "auto");
  EXPECT_GT(found.nearest->plan.missing_bytes, 0);
  EXPECT_EQ(found.devices_that_fit, 2);
}

// One answer's cache has no room on one device, and every rank of tp has the only head of keys. Stages share the
// layers, but only ranks along cp share the reading of the prompt.
TEST(ServeSearchTest, ALongPromptIsSpread) {
  ModelConfig m = family_defaults("llama");
  m.layers = 16, m.hidden = 1024, m.heads = 8, m.kv_heads = 1, m.ffn = 2816, m.vocab = 32000, m.context = 1 << 18;
  complete(m);
  ServeSearchRequest q = serving_of(m, "2xrtx4090", ServeTarget::latency);
  q.quantize = {"auto"};
  q.serve.input_len = m.context - 256, q.serve.max_running = 1;
  q.serve.cluster.hardware.memory_bytes = 2.2e9, q.serve.cluster.hardware.reserved_bytes = 0;
  const ServeSearchResult any = search_serving(q);
  ASSERT_FALSE(any.ranked.empty());
  EXPECT_EQ(any.ranked[0].plan.mesh.pp, 2);
  q.ttft_limit_s = 0.9 * any.ranked[0].plan.ttft_s;
  const ServeSearchResult soon = search_serving(q);
  ASSERT_FALSE(soon.ranked.empty());
  EXPECT_EQ(soon.ranked[0].plan.mesh.cp, 2);
  EXPECT_EQ(describe_layout(soon.ranked[0].plan), "cp=2");
  // Of short texts nothing is to be shared out.
  q.ttft_limit_s = 0, q.serve.input_len = 256;
  for (const ServeCandidate& c : search_serving(q).ranked) EXPECT_EQ(c.plan.mesh.cp, 1);
}

TEST(ServeSearchTest, LimitsCountAndWhatKeepsNoneIsNamed) {
  ServeSearchRequest q = serving_of(model(), "1xh100-sxm", ServeTarget::throughput);
  q.quantize = {"auto"};
  const ServeSearchResult free = search_serving(q);
  q.tpot_limit_s = free.ranked[0].plan.batches[2].loaded.step_s;
  const ServeSearchResult limited = search_serving(q);
  EXPECT_EQ(limited.ranked[0].batch().batch, 4);
  q.ttft_limit_s = 1e-6;
  const ServeSearchResult none = search_serving(q);
  EXPECT_TRUE(none.ranked.empty());
  EXPECT_TRUE(none.too_slow);
  EXPECT_FALSE(none.nearest);
}

// Ranks that share a machine have no more of it together than one.
TEST(MachineRanksTest, ShareTheMachine) {
  const Hardware base = find_hardware("cpu-node");
  const Cluster one = machine_ranks(base, 16, 64e9, 1), four = machine_ranks(base, 16, 64e9, 4);
  EXPECT_EQ(four.num_devices, 4);
  EXPECT_DOUBLE_EQ(4 * four.hardware.memory_bytes, one.hardware.memory_bytes);
  EXPECT_DOUBLE_EQ(4 * four.hardware.memory_bytes_per_s, one.hardware.memory_bytes_per_s);
  EXPECT_DOUBLE_EQ(one.hardware.peak(MatmulType::fp32), 2 * base.peak(MatmulType::fp32));
  EXPECT_DOUBLE_EQ(4 * four.hardware.peak(MatmulType::fp32), one.hardware.peak(MatmulType::fp32));
}

}  // namespace
}  // namespace weft::plan
