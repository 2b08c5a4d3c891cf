// A loss or gradient that is not finite stops the run naming step, rank and parameter, or skips the step.
#include "train/training_setup.h"

namespace weft {
namespace {

// Puts a NaN into one weight of one rank: its gradients break there first.
void poison(Trainer& trainer, const std::string& name) {
  overwrite(trainer, name, std::numeric_limits<float>::quiet_NaN());
}

std::string failure_of(const Recipe& recipe, int poisoned_rank) {
  try {
    run_ranks(recipe.mesh.size(), [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const SyntheticBatches batches = batches_of(recipe);
      Trainer trainer(rank.context, world, recipe, batches);
      trainer.step();
      if (world.rank() == poisoned_rank) poison(trainer, "layers.1.mlp.down.weight");
      trainer.step();
    });
  } catch (const Error& e) {
    return e.what();
  }
  return "no failure";
}

TEST(NotFiniteTest, StopsNamingStepRankAndParameter) {
  for (const int rank : {0, 1}) {
    const std::string text = failure_of(small_recipe("llama", Precision::fp32, 2), rank);
    EXPECT_NE(text.find(fmt::format("rank {}", rank)), std::string::npos) << text;
    EXPECT_NE(text.find("step 2"), std::string::npos) << text;
    EXPECT_NE(text.find("gradient of"), std::string::npos) << text;
    EXPECT_NE(text.find("on_not_finite"), std::string::npos) << text;
  }
}

TEST(NotFiniteTest, SkipsTheStepWhereTheRecipeSaysSo) {
  Recipe recipe = small_recipe("llama", Precision::fp32, 1);
  recipe.train.on_not_finite = OnNotFinite::skip;
  run_ranks(1, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    poison(trainer, "layers.0.attention.query.weight");
    TrainedRun before;
    add_tensors(recipe, trainer, before);
    EXPECT_TRUE(trainer.step().was_skipped);
    TrainedRun after;
    add_tensors(recipe, trainer, after);
    EXPECT_EQ(before.weights[1], after.weights[1]);
    EXPECT_EQ(trainer.next_step(), 1);
  });
}

}  // namespace
}  // namespace weft
