// Learning from answers of one's own on devices: the same answers as on one rank of the CPU, and the same weights.
#include "rollout/policy_setup.h"

namespace weft {
namespace {

class CudaPolicyTest : public testing::TestWithParam<PolicyCase> {};
INSTANTIATE_TEST_SUITE_P(
    Meshes, CudaPolicyTest,
    testing::Values(PolicyCase{"one", {}, PolicyMethod::grpo, 2},
                    PolicyCase{"tp2", {.shape = {.tp = 2}, .sequence_parallel = true}, PolicyMethod::dapo},
                    PolicyCase{"zero3", {.shape = {.shard = 2}, .zero = Zero::parameters}, PolicyMethod::gspo}),
    [](const auto& test) { return test.param.name; });

TEST_P(CudaPolicyTest, AnswersAndLearnsAsOneRankOfTheCpu) {
  expect_answers_and_learning_of_one_rank(GetParam(), Device::cuda, 2);
}

}  // namespace
}  // namespace weft
