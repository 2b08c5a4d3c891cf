// A training step in the steady state allocates nothing, and its memory is what the estimate said.
#include "base/temporary_folder.h"
#include "support/count_allocations.h"
#include "train/training_setup.h"
#include "weft/train/memory_estimate.h"

namespace weft {
namespace {

struct SteadyCase {
  const char* family;
  Precision precision;
  int dp;
  int recompute_every;
  OptimizerKind optimizer = OptimizerKind::adamw;
  int tp = 1;
  Zero zero = Zero::none;
  int64_t experts = 0;
  OffloadTo offload = OffloadTo::none;  // of all that can be
};

class SteadyStateTest : public testing::TestWithParam<SteadyCase> {};
constexpr SteadyCase kSteadyCases[] = {
    {"gpt2", Precision::fp32, 1, 0},
    {"llama", Precision::bf16, 1, 0},
    {"llama", Precision::fp32, 2, 0},
    {"gpt2", Precision::bf16, 2, 1},
    {"llama", Precision::fp8, 1, 0},
    {"gpt2", Precision::fp8, 2, 1},
    {"llama", Precision::fp32, 1, 1},
    {"llama", Precision::fp16, 1, 0},
    {"llama", Precision::bf16, 1, 0, OptimizerKind::adamw8bit},
    {"llama", Precision::fp32, 1, 0, OptimizerKind::adafactor, 2},
    {"gpt2", Precision::fp32, 1, 0, OptimizerKind::lion},
    {"gpt2", Precision::bf16, 1, 0, OptimizerKind::sgd},
    {"llama", Precision::bf16, 1, 0, OptimizerKind::muon},
    {"llama", Precision::fp32, 2, 0, OptimizerKind::muon, 1, Zero::parameters},
    {.family = "llama", .precision = Precision::fp32, .dp = 2, .experts = 8},
    {.family = "llama", .precision = Precision::bf16, .dp = 1, .recompute_every = 1, .experts = 4},
    {.family = "llama", .precision = Precision::fp32, .dp = 1, .recompute_every = 1, .offload = OffloadTo::host},
    {.family = "llama",
     .precision = Precision::bf16,
     .dp = 2,
     .recompute_every = 1,
     .zero = Zero::parameters,
     .offload = OffloadTo::host},
    {.family = "gpt2",
     .precision = Precision::bf16,
     .dp = 2,
     .recompute_every = 1,
     .zero = Zero::optimizer,
     .offload = OffloadTo::disk},
    {.family = "llama",
     .precision = Precision::fp32,
     .dp = 2,
     .recompute_every = 1,
     .zero = Zero::parameters,
     .offload = OffloadTo::disk},
    {.family = "llama",
     .precision = Precision::bf16,
     .dp = 2,
     .optimizer = OptimizerKind::muon,
     .zero = Zero::parameters,
     .offload = OffloadTo::host}};
INSTANTIATE_TEST_SUITE_P(Recipes, SteadyStateTest, testing::ValuesIn(kSteadyCases));

TEST_P(SteadyStateTest, AllocatesNothingAndPeaksWhereTheEstimateSays) {
  const SteadyCase& c = GetParam();
  Recipe recipe = small_recipe(c.family, c.precision, c.dp, 2);
  recipe.model.experts = c.experts, recipe.model.aux_loss = 0.1f, recipe.model.router_bias_rate = 0.01f;
  complete(recipe.model);
  recipe.optimizer.kind = c.optimizer, recipe.mesh.shape.tp = c.tp, recipe.mesh.zero = c.zero;
  if (c.recompute_every > 0) recipe.train.recompute = {RecomputePolicy::What::block, c.recompute_every};
  const TemporaryFolder folder;
  recipe.mesh.offload = {.optimizer = c.offload,
                         .parameters = c.zero == Zero::parameters ? c.offload : OffloadTo::none,
                         .activations = c.recompute_every > 0 ? c.offload : OffloadTo::none,
                         .dir = folder.path()};
  const std::vector<MemoryEstimate> estimates = estimate_memory(recipe);
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    const MemoryEstimate& estimate = estimates[size_t(world.rank())];
    TestRank rank(cpu_kernels(), 2);
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    for (int i = 0; i < 3; ++i) trainer.step();
    world.barrier();
    const int64_t before = num_allocations, system_calls = rank.allocator.stats().system_calls;
    world.barrier();
    for (int i = 0; i < 5; ++i) trainer.step();
    world.barrier();
    const int64_t allocations = num_allocations - before;
    world.barrier();
    EXPECT_EQ(allocations, 0);
    EXPECT_EQ(rank.allocator.stats().system_calls, system_calls);
    EXPECT_EQ(rank.allocator.stats().peak_bytes, estimate.peak_bytes);
    EXPECT_EQ(rank.allocator.stats().live_bytes, estimate.state_bytes);
  });
}

}  // namespace
}  // namespace weft
