// How busy experts are said to be, which is the same on any mesh.
#include "train/mesh_cases.h"

namespace weft {
namespace {

constexpr MeshCase kMeshes[] = {
    {.experts = 4},
    {.shape = {.shard = 2}, .accumulation = 2, .experts = 4},
    {.shape = {.tp = 2}, .experts = 4},
    {.shape = {.pp = 2}, .accumulation = 4, .experts = 4},
    {.shape = {.cp = 2}, .experts = 4},
    {.shape = {.shard = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.shape = {.shard = 4, .ep = 4}, .recompute = {RecomputePolicy::What::block}, .experts = 4}};

StepResult first_step(const MeshCase& mesh, bool has_zero_routers) {
  const Recipe recipe = recipe_of(mesh);
  const SyntheticBatches batches = batches_of(recipe);
  StepResult result;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    Trainer trainer(rank.context, world, recipe, batches);
    if (has_zero_routers) zero_routers(trainer);
    const StepResult mine = trainer.step();
    if (world.rank() == world.size() - 1) result = mine;
  });
  return result;
}

TEST(ExpertLoadTest, IsThatOfOneRank) {
  const double load = first_step(kMeshes[0], false).expert_load.value();
  EXPECT_GT(load, 1);
  EXPECT_LT(load, 2);
  for (const MeshCase& mesh : kMeshes) EXPECT_EQ(first_step(mesh, false).expert_load, load) << name_of(mesh);
}

// Two of four experts have all tokens; of two or four ranks the first has both or one of them.
TEST(ExpertLoadTest, OfRanksIsToldWhereExpertsLieOnSeveral) {
  for (const MeshCase& mesh : kMeshes) {
    const StepResult result = first_step(mesh, true);
    EXPECT_EQ(result.expert_load, 2) << name_of(mesh);
    EXPECT_EQ(result.expert_rank_load, mesh.shape.ep > 1 ? std::optional<double>(2) : std::nullopt) << name_of(mesh);
  }
}

TEST(ExpertLoadTest, IsNotToldOfModelsWithoutExperts) { EXPECT_EQ(first_step({}, false).expert_load, std::nullopt); }

}  // namespace
}  // namespace weft
