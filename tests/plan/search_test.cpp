// The planner's choices: what is ranked first, and what does not fit.
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

}  // namespace
}  // namespace weft::plan
