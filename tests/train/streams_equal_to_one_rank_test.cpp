// The law of the house for several residual streams: any mesh gives the loss, every gradient and the weights of one
// rank.
#include "train/mesh_cases.h"

namespace weft {
namespace {

const LoraConfig kOutputLora{.rank = 3, .alpha = 24, .targets = bit_of(LoraTarget::output) | bit_of(LoraTarget::up)};

// Several residual streams, which go from stage to stage and are cut as the one stream is.
const MeshCase kStreamCases[] = {
    {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .accumulation = 2, .dropout = 0.2f, .streams = 4},
    {.shape = {.pp = 4}, .schedule = ScheduleKind::zb_h1, .accumulation = 4, .streams = 3},
    {.shape = {.cp = 2, .tp = 2}, .recompute = {RecomputePolicy::What::block}, .streams = 2},
    {.shape = {.pp = 2, .tp = 2}, .sequence_parallel = true, .accumulation = 2, .streams = 4, .mix_steps = 20},
    {.shape = {.shard = 2, .cp = 2},
     .zero = Zero::parameters,
     .recompute = {RecomputePolicy::What::block},
     .streams = 3,
     .mix_steps = 5},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .recompute = {RecomputePolicy::What::mlp}, .streams = 4},
    {.family = "hy_v4",
     .shape = {.tp = 2},
     .sequence_parallel = true,
     .recompute = {RecomputePolicy::What::attention}},
    {.family = "hy_v4", .shape = {.pp = 2, .tp = 2}, .accumulation = 2, .recompute = {RecomputePolicy::What::block}},
    {.family = "hy_v4", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "hy_v4", .shape = {.tp = 2}, .lora = kOutputLora},
};

class StreamsEqualToOneRankTest : public testing::TestWithParam<MeshCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, StreamsEqualToOneRankTest, testing::ValuesIn(kStreamCases), mesh_case_name);

TEST_P(StreamsEqualToOneRankTest, LossGradientsAndWeights) { expect_equal_to_one_rank(GetParam()); }

}  // namespace
}  // namespace weft
