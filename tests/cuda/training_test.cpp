// Training on devices: any mesh of ranks that share one gives what one rank on the CPU gives, and offload and
// checkpoints reach what lies there.
#include "train/mesh_cases.h"
#include "weft/tensor/cuda/cuda_queue.h"

namespace weft {
namespace {

const LoraConfig kLora{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets};
const LoraConfig kDoraNf4{.rank = 3, .alpha = 24, .targets = 0x79, .base = BaseFormat::nf4, .is_dora = true};

const MeshCase kTrainingCases[] = {
    {},
    {.family = "gpt2", .accumulation = 2, .dropout = 0.2f, .tie = true},
    {.precision = Precision::bf16},
    {.shape = {.shard = 2}},
    {.shape = {.shard = 2}, .zero = Zero::optimizer},
    {.shape = {.shard = 2}, .zero = Zero::gradients, .accumulation = 2, .recompute = {RecomputePolicy::What::block}},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters},
    {.shape = {.tp = 2}, .sequence_parallel = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4},
    {.shape = {.cp = 2}, .cp_mode = ContextMode::ring},
    {.shape = {.cp = 2}, .dropout = 0.2f, .cp_mode = ContextMode::ulysses},
    {.shape = {.cp = 2}, .cp_mode = ContextMode::allgather},
    {.shape = {.shard = 2, .ep = 2}, .experts = 4},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::parameters,
     .accumulation = 2,
     .precision = Precision::bf16},
    {.precision = Precision::fp8},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::parameters,
     .accumulation = 2,
     .recompute = {RecomputePolicy::What::block},
     .precision = Precision::fp8},
    {.shape = {.shard = 2}, .zero = Zero::parameters, .lora = kLora},
    {.shape = {.tp = 2}, .lora = kDoraNf4},
    {.shape = {.shard = 2},
     .zero = Zero::parameters,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::disk},
    {.recompute = {RecomputePolicy::What::block}, .offload_activations = OffloadTo::host},
    {.family = "qwen3_5", .shape = {.cp = 2, .tp = 2}},
    {.family = "kimi_linear", .shape = {.cp = 2, .tp = 2}},
    {.family = "granitemoehybrid", .shape = {.cp = 2, .tp = 2}},
    {.family = "falcon_h1", .shape = {.cp = 2, .tp = 2}},
    {.family = "olmo_hybrid", .shape = {.shard = 2}},
    {.family = "mimo_v2_flash", .shape = {.tp = 2}},
    {.family = "deepseek_v32", .shape = {.tp = 2}},
    {.family = "hy_v4", .shape = {.tp = 2}, .experts = 4},
    {.shape = {.tp = 2}, .streams = 4, .mix_steps = 20},
    {.family = "lfm2", .shape = {.cp = 2, .tp = 2}},
    {.family = "lfm3", .shape = {.tp = 2}},
    {.family = "apertus", .shape = {.tp = 2}},
    {.family = "minicpm3", .shape = {.tp = 2}},
    {.family = "phi", .shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters},
    {.family = "nanochat", .shape = {.tp = 2}, .sequence_parallel = true},
    {.family = "nemotron_h", .shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "nemotron_h", .shape = {.shard = 2, .tp = 2, .ep = 2}, .experts = 4, .expert_latent_dim = 20},
    {.family = "qwen3_next", .shape = {.shard = 2}, .experts = 4},
    {.family = "gemma4", .shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "gemma4",
     .shape = {.cp = 2, .tp = 2},
     .recompute = {RecomputePolicy::What::block},
     .shared_keys = true},
    {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .accumulation = 2, .dropout = 0.2f, .mtp = true},
    {.shape = {.shard = 2}, .zero = Zero::parameters, .precision = Precision::bf16, .experts = 4, .mtp = true},
};

class CudaTrainingTest : public testing::TestWithParam<MeshCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, CudaTrainingTest, testing::ValuesIn(kTrainingCases), mesh_case_name);

TEST_P(CudaTrainingTest, EqualsOneRankOfTheCpu) { expect_equal_to_one_rank(GetParam(), Device::cuda); }

// Some steps, and how many graphs rank 0 launched in the last one.
struct GraphedRun {
  TrainedRun run;
  int64_t launched = 0;
};
GraphedRun graphed_run(const Recipe& recipe, int steps, bool in_graphs) {
  const SyntheticBatches batches = batches_of(recipe);
  GraphedRun graphed;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(kernels_of(Device::cuda), 1, Device::cuda);
    Trainer trainer(rank.context, world, recipe, batches);
    StepGraphs& graphs = static_cast<CudaQueue&>(rank.stream.queue()).steps();
    if (!in_graphs) graphs.stop();
    TrainedRun run = take_steps(recipe, trainer, steps - 1);
    const int64_t before = graphs.stats().launched;
    run.losses.push_back(trainer.step().loss);
    const int64_t launched = graphs.stats().launched - before;
    add_tensors(recipe, trainer, run);
    if (world.rank() == 0) graphed = {std::move(run), launched};
  });
  return graphed;
}

class CudaTrainingGraphs : public testing::TestWithParam<MeshCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, CudaTrainingGraphs,
                         testing::Values(MeshCase{.family = "gpt2", .accumulation = 2, .dropout = 0.2f},
                                         kTrainingCases[6], kTrainingCases[7], kTrainingCases[8], kTrainingCases[18]),
                         mesh_case_name);

// Forward and backward passes, on any mesh; the bits are those of steps without.
TEST_P(CudaTrainingGraphs, GiveTheBitsOfStepsWithoutThem) {
  Recipe recipe = recipe_of(GetParam());
  recipe.model.layers = 2 * recipe.mesh.shape.pp;
  recipe.mesh.device = Device::cuda;
  const GraphedRun got = graphed_run(recipe, 6, true), want = graphed_run(recipe, 6, false);
  EXPECT_EQ(got.run.losses, want.run.losses);
  EXPECT_EQ(got.run.weights, want.run.weights);
  EXPECT_GT(got.launched, 0);
  EXPECT_EQ(want.launched, 0);
}

}  // namespace
}  // namespace weft
