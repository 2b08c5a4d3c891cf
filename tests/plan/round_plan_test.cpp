// Plans of runs that learn from answers of their own: how long these take, and what follows for layouts.
#include "weft/plan/round_plan.h"
#include "plan/searches.h"

namespace weft::plan {
namespace {

Recipe answering(const MeshShape& shape) {
  Recipe r;
  r.model = llama8b(2048);
  r.model.layers = 4;
  r.policy = PolicyConfig::of(PolicyMethod::grpo);
  r.policy.answers = 8, r.policy.max_tokens = 1024, r.policy.running = 32;
  r.mesh.shape = shape, r.mesh.zero = Zero::gradients;
  r.train = {.steps = 10, .seq_len = 1536, .global_batch = 256, .micro_batch = 1, .precision = Precision::bf16};
  r.train.accumulation = 256 / shape.dp();
  return r;
}

StepPlan planned(const Recipe& recipe, const std::string& cluster) {
  return plan_step(recipe, parse_cluster(cluster));
}

TEST(RoundPlanTest, AnswersTakeLongerTheMoreThereAre) {
  const Recipe recipe = answering({.shard = 4});
  const StepPlan plan = planned(recipe, "4xh100-sxm");
  const auto changed = [&](auto change) {
    Recipe r = recipe;
    change(r.policy);
    return planned(r, "4xh100-sxm");
  };
  // 64 answers to a replica, of 1,024 tokens.
  EXPECT_NEAR(plan.answer_tokens_per_s, 256 * 1024 / plan.round_s, 1);
  EXPECT_NEAR(changed([](PolicyConfig& c) { c.updates = 2; }).round_s / plan.round_s, 2, 0.01);
  EXPECT_NEAR(changed([](PolicyConfig& c) { c.updates = 2; }).round_share_s / plan.round_share_s, 1, 0.01);
  EXPECT_NEAR(changed([](PolicyConfig& c) { c.max_tokens = 512; }).round_s / plan.round_s, 0.5, 0.05);
  // All at once read the weights half as often.
  const StepPlan wider = changed([](PolicyConfig& c) { c.running = 64; });
  EXPECT_LT(wider.round_s, 0.75 * plan.round_s);
  EXPECT_GT(wider.most_round_bytes(), plan.most_round_bytes());
  EXPECT_NEAR(planned(answering({.shard = 8}), "8xh100-sxm").round_s / plan.round_s, 0.5, 0.02);
  EXPECT_DOUBLE_EQ(plan.step_with_answers_s(), plan.step_s + plan.round_s);
}

TEST(RoundPlanTest, ACacheThatDoesNotFitIsMissing) {
  Recipe recipe = answering({.shard = 4});
  EXPECT_TRUE(planned(recipe, "4xh100-sxm").fits());
  recipe.policy.running = 1 << 16, recipe.train.global_batch = 1 << 16, recipe.train.accumulation = 1 << 14;
  const StepPlan plan = planned(recipe, "4xh100-sxm");
  EXPECT_FALSE(plan.fits());
  EXPECT_LT(plan.peak_bytes(), int64_t(plan.capacity_bytes));
  EXPECT_DOUBLE_EQ(plan.missing_bytes(), double(plan.most_round_bytes()) - plan.capacity_bytes);
}

TEST(RoundPlanTest, LayoutsAreRankedWithTheirAnswers) {
  SearchRequest q = search_request(answering({.shard = 8}));
  q.cluster = parse_cluster("8xh100-sxm");
  q.num_full = 4;
  const SearchResult found = search(q);
  ASSERT_FALSE(found.ranked.empty());
  for (size_t i = 0; i < found.ranked.size(); ++i) {
    const StepPlan& plan = found.ranked[i].plan;
    EXPECT_GT(plan.round_share_s, 0);
    if (i > 0) EXPECT_GE(plan.step_with_answers_s(), found.ranked[i - 1].plan.step_with_answers_s());
  }
}

}  // namespace
}  // namespace weft::plan
