// Learning from answers of one's own: what is rewarded comes to be said.
#include "rollout/policy_setup.h"

namespace weft {
namespace {

using Method = PolicyMethod;

// The model answers as it is, not as it was.
TEST(PolicyTrainingTest, RewardsRise) {
  for (const Method method : {Method::grpo, Method::dapo, Method::dr_grpo, Method::gspo}) {
    Recipe r = policy_recipe({}, method, 2);
    r.policy.reward = RewardKind::contains, r.policy.answers = 16;
    r.train.global_batch = 48, r.train.micro_batch = 16, r.train.accumulation = 3;
    r.optimizer.adamw.eps = 1e-8, r.optimizer.schedule.lr = 1e-2;
    const Learned learned = learn(r, 40);
    double first = 0, last = 0;
    for (size_t i = 0; i < 4; ++i) first += learned.figures[i].reward / 4, last += learned.figures[36 + i].reward / 4;
    EXPECT_LT(first, 0.2) << int(method);
    EXPECT_GT(last, 0.9) << int(method);
    EXPECT_GT(learned.validation.back(), 0.9) << int(method);
  }
}

}  // namespace
}  // namespace weft
