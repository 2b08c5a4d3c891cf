// What a rank is said to hold, by use.
#include "train/mesh_cases.h"
#include "weft/plan/trace_step.h"

namespace weft::plan {
namespace {

// bf16 weights, f32 gradients, and f32 masters and moments, cut as ZeRO-2 cuts them.
TEST(PlannedMemoryTest, IsSplitByUse) {
  const Recipe recipe = recipe_of({.shape = {.shard = 2}, .zero = Zero::gradients, .precision = Precision::bf16});
  const StepTrace trace = trace_step(recipe, 0);
  const auto params = double(recipe.model.num_params());
  const MemorySplit& s = trace.peak.split;
  EXPECT_NEAR(double(s[MemoryUse::weights]), 2 * params, 0.2 * params);
  EXPECT_NEAR(double(s[MemoryUse::gradients]), 4 * params / 2, 0.4 * params);
  EXPECT_NEAR(double(s[MemoryUse::optimizer]), 12 * params / 2, 1.2 * params);
  EXPECT_GT(s[MemoryUse::activations], 0);
  EXPECT_GT(s[MemoryUse::communication], 0);
}

}  // namespace
}  // namespace weft::plan
