// The planner's choices: what is ranked first, what does not fit, and the recipe that is written.
#include "plan/searches.h"

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

TEST(SearchTest, WhatDoesNotFitSaysHowMuchIsMissing) {
  const SearchResult found = search_for(llama8b(), "1xh100-sxm", 2048, 8);
  EXPECT_TRUE(found.ranked.empty());
  ASSERT_TRUE(found.nearest);
  EXPECT_GT(found.nearest_missing_bytes, 1e9);
  EXPECT_GT(found.devices_that_fit, 1);
}

// What is written is what `weft train` reads.
TEST(SearchTest, RecipesAreReadBack) {
  const SearchRequest request{
      .model = llama8b(), .seq_len = 4096, .global_batch = 64, .cluster = parse_cluster("16xa100-80"), .num_full = 3};
  const SearchResult found = search(request);
  ASSERT_FALSE(found.ranked.empty());
  for (const Candidate& c : found.ranked) {
    Toml toml = Toml::parse(recipe_text(request, c.recipe, "text.txt"), "planned.toml");
    Recipe read = read_recipe(toml);
    set_vocab(read, read.model.vocab);
    EXPECT_EQ(read.model, c.recipe.model);
    EXPECT_EQ(read.mesh.shape, c.recipe.mesh.shape);
    EXPECT_EQ(read.mesh.zero, c.recipe.mesh.zero);
    EXPECT_EQ(read.mesh.schedule, c.recipe.mesh.schedule);
    EXPECT_EQ(read.mesh.virtual_stages, c.recipe.mesh.virtual_stages);
    EXPECT_EQ(read.mesh.sequence_parallel, c.recipe.mesh.sequence_parallel);
    EXPECT_EQ(read.train.accumulation, c.recipe.train.accumulation);
    EXPECT_EQ(read.train.recompute.what, c.recipe.train.recompute.what);
  }
}

}  // namespace
}  // namespace weft::plan
