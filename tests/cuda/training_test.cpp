// Training on devices: any mesh of ranks that share one gives what one rank on the CPU gives, and offload and
// checkpoints reach what lies there.
#include "train/mesh_cases.h"

namespace weft {
namespace {

const LoraConfig kLora{.rank = 4, .alpha = 32, .dropout = 0, .targets = 0x7f};
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
};

class CudaTrainingTest : public testing::TestWithParam<MeshCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, CudaTrainingTest, testing::ValuesIn(kTrainingCases), mesh_case_name);

TEST_P(CudaTrainingTest, EqualsOneRankOfTheCpu) { expect_equal_to_one_rank(GetParam(), Device::cuda); }

}  // namespace
}  // namespace weft
