// The planner's choices: what is ranked first, and what does not fit.
#include "plan/searches.h"
#include "train/training_setup.h"
#include "weft/plan/rough.h"

namespace weft::plan {
namespace {

TEST(SearchTest, LayoutsAreRanked) {
  const SearchResult found = search_for(llama8b(), "4xh100-sxm", 2048, 8);
  ASSERT_FALSE(found.ranked.empty());
  const Recipe& best = found.ranked.front().recipe;
  EXPECT_EQ(best.mesh.shape.pp, 1) << describe_layout(best);  // four devices of a node need no pipeline
  EXPECT_TRUE(found.ranked.front().plan.fits());
  for (size_t i = 1; i < found.ranked.size(); ++i) {
    EXPECT_GE(found.ranked[i].plan.step_s, found.ranked[i - 1].plan.step_s);
    EXPECT_FALSE(found.ranked[i].loses.empty());
  }
}

TEST(SearchTest, RankedLayoutsAreBetterInSomethingThanAllOthers) {
  ModelConfig small = llama8b(2048);
  small.layers = 4;
  const SearchResult found = search_for(small, "8xh100-sxm", 2048, 16);
  ASSERT_GT(found.ranked.size(), 1u);
  ASSERT_FALSE(found.dominated.empty());
  const auto beats = [](const Candidate& a, const Candidate& b) {
    return a.plan.step_s <= b.plan.step_s && a.plan.peak_bytes() <= b.plan.peak_bytes();
  };
  for (const Candidate& c : found.ranked)
    EXPECT_EQ(std::ranges::count_if(found.ranked, [&](const Candidate& other) { return beats(other, c); }), 1);
  for (const Candidate& c : found.dominated) {
    EXPECT_TRUE(std::ranges::any_of(found.ranked, [&](const Candidate& other) { return beats(other, c); }));
    EXPECT_FALSE(c.loses.empty());
  }
}

TEST(SearchTest, LayoutsAreRankedByWhatIsAskedFor) {
  const auto ranked_by = [](RankBy by) {
    SearchRequest q{.model = llama8b(2048), .seq_len = 2048, .global_batch = 16};
    q.model.layers = 2, q.cluster = parse_cluster("16xa100-80");
    q.rank_by = by, q.num_full = 2;
    return search(q).ranked;
  };
  const std::vector<Candidate> fast = ranked_by(RankBy::time), cheap = ranked_by(RankBy::cost),
                               small = ranked_by(RankBy::memory);
  ASSERT_FALSE(fast.empty() || cheap.empty() || small.empty());
  EXPECT_EQ(fast[0].recipe.mesh.size(), 16);
  EXPECT_LT(fast[0].plan.step_s, small[0].plan.step_s);
  EXPECT_LT(small[0].plan.peak_bytes(), fast[0].plan.peak_bytes());
  // One node's links cost less than the network's.
  EXPECT_LT(cheap[0].recipe.mesh.size(), 16);
  EXPECT_LT(cheap[0].device_hours_per_token(), fast[0].device_hours_per_token());
}

TEST(SearchTest, WhatDoesNotFitSaysHowMuchIsMissing) {
  const SearchResult found = search_for(llama8b(), "1xh100-sxm", 2048, 8);
  EXPECT_TRUE(found.ranked.empty());
  ASSERT_TRUE(found.nearest);
  EXPECT_GT(found.nearest_missing_bytes, 1e9);
  EXPECT_GT(found.devices_that_fit, 1);
}

TEST(SearchTest, LayersThatStandOnOneStageAreNotCut) {
  ModelConfig model = preset("gemma-4-e4b");
  complete(model);
  const SearchResult found = search(
      {.model = model, .seq_len = 512, .global_batch = 8, .cluster = parse_cluster("4xh100-sxm"), .num_full = 1});
  ASSERT_FALSE(found.ranked.empty());
  for (const Candidate& c : found.ranked) EXPECT_EQ(c.recipe.mesh.shape.pp, 1);
}

// No layer is the mean one, so that every kind must be counted.
TEST(RoughPlannerTest, KnowsEveryKindOfLayer) {
  const Cluster cluster = parse_cluster("8xh100-sxm");
  for (const char* name : {"nemotron-3-nano-30b-a3b", "nemotron-3-super-120b-a12b", "lfm2-8b-a1b",
                           "kimi-linear-48b-a3b", "gemma-4-26b-a4b", "gemma-4-e4b"})
    for (const MeshShape& shape : {MeshShape{.shard = 8, .ep = 8}, MeshShape{.pp = 4, .shard = 2, .ep = 2},
                                   MeshShape{.pp = 2, .shard = 2, .tp = 2}, MeshShape{.shard = 4, .tp = 2}}) {
      if ((shape.ep > 1 && preset(name).experts == 0) || (shape.pp > 1 && preset(name).stands_on_one_stage()))
        continue;
      Recipe r;
      r.model = preset(name);
      complete(r.model);
      r.train.seq_len = 4096, r.train.micro_batch = 1, r.train.accumulation = 8, r.train.precision = Precision::bf16;
      r.train.global_batch = 8 * shape.dp();
      r.mesh.shape = shape, r.mesh.zero = Zero::optimizer;
      const Rough rough = std::get<Rough>(RoughPlanner(cluster, {}).estimate(std::span(&r, 1))[0]);
      const StepPlan plan = plan_step(r, cluster);
      EXPECT_NEAR(rough.peak_bytes / double(plan.peak_bytes()), 1, 0.2) << name << " " << describe_layout(r);
      EXPECT_NEAR(rough.step_s / plan.step_s, 1, 0.2) << name << " " << describe_layout(r);
    }
}

TEST(SearchTest, ATeacherTakesMemoryAndTime) {
  SearchRequest q{
      .model = llama8b(), .seq_len = 2048, .global_batch = 8, .cluster = parse_cluster("8xh100-sxm"), .num_full = 2};
  const SearchResult without = search(q);
  q.distill.teacher = "a-folder";
  q.teacher = llama8b();
  q.teacher->layers *= 2;
  complete(*q.teacher);
  const SearchResult with = search(q);
  ASSERT_FALSE(without.ranked.empty());
  ASSERT_FALSE(with.ranked.empty());
  EXPECT_LT(with.num_fitting, without.num_fitting);
  // Twice the layers, forward only: two thirds as much again.
  const double more = with.ranked.front().plan.step_s / without.ranked.front().plan.step_s;
  EXPECT_GT(more, 1.5);
  EXPECT_LT(more, 2.5);
  q.teacher->vocab += 1;
  try {
    search(q);
    ADD_FAILURE() << "models of different vocabularies";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("tokens"), std::string::npos) << e.what();
  }
}

// Products of layers at most twice as fast, less what rounding their operands takes; a card without fp8 has only
// that.
TEST(StepPlanTest, Fp8IsFasterWhereCardsMultiplyIt) {
  Recipe r = small_recipe("llama", Precision::bf16, 1);
  r.model.layers = 4, r.model.hidden = 4096, r.model.heads = 32, r.model.kv_heads = 8, r.model.head_dim = 128;
  r.model.ffn = 14336, r.model.vocab = 32000, r.model.context = 4096;
  r.train.seq_len = 4096, r.train.micro_batch = 2, r.train.accumulation = 4, r.train.global_batch = 8;
  const auto step_s = [&](const char* cluster, Precision precision) {
    r.train.precision = precision;
    return plan_step(r, parse_cluster(cluster)).step_s;
  };
  const double gain = step_s("1xh100-sxm", Precision::bf16) / step_s("1xh100-sxm", Precision::fp8);
  EXPECT_GT(gain, 1.15);
  EXPECT_LT(gain, 2);
  EXPECT_GT(step_s("1xa100-80", Precision::fp8), step_s("1xa100-80", Precision::bf16));
}

TEST(StepPlanTest, WhatIsOffloadedNeedsRoomOnTheHost) {
  Recipe r = small_recipe("llama", Precision::bf16, 1);
  r.mesh.shape.shard = 2, r.mesh.zero = Zero::optimizer, r.mesh.offload.optimizer = OffloadTo::host;
  r.train.global_batch = 2 * r.train.micro_batch * r.train.accumulation;
  complete(r.model);
  Cluster cluster = parse_cluster("2xh100-sxm");
  const StepPlan free = plan_step(r, cluster);
  ASSERT_GT(free.most_host_bytes(), 0);
  EXPECT_TRUE(free.fits());
  const double needed = double(free.most_host_bytes()) * cluster.hardware.devices_per_node;
  cluster.hardware.host_bytes = needed;
  EXPECT_TRUE(plan_step(r, cluster).fits());
  cluster.hardware.host_bytes = needed / 2;
  const StepPlan tight = plan_step(r, cluster);
  EXPECT_FALSE(tight.fits());
  EXPECT_DOUBLE_EQ(tight.missing_host_bytes(), double(free.most_host_bytes()) / 2);
  // Ranks on cores have one memory for both.
  cluster.hardware.sharing = {{}, {.ranks = 2, .link_bytes_per_s = 1e9}};
  const StepPlan shared = plan_step(r, cluster);
  EXPECT_DOUBLE_EQ(shared.capacity_bytes, (cluster.hardware.memory_bytes - cluster.hardware.reserved_bytes) / 2 -
                                              double(shared.host_bytes[0]));
}

}  // namespace
}  // namespace weft::plan
