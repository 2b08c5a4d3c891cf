// Learning-rate curves, the loss scaler, and the global norm.
#include "optim/one_rank.h"
#include "weft/optim/grad_norm.h"
#include "weft/optim/loss_scaler.h"
#include "weft/optim/schedule.h"

namespace weft {
namespace {

TEST(LrScheduleTest, WarmsUpThenDecays) {
  LrSchedule s{.decay = Decay::cosine, .lr = 1, .min_lr = 0.1, .warmup = 10, .steps = 111};
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(9), 1);
  EXPECT_DOUBLE_EQ(s.at(10), 1);
  EXPECT_NEAR(s.at(60), 0.55, 1e-12);
  EXPECT_NEAR(s.at(110), 0.1, 1e-12);
  s.decay = Decay::linear;
  EXPECT_NEAR(s.at(35), 1 - 0.9 * 0.25, 1e-12);
  s.decay = Decay::constant;
  EXPECT_DOUBLE_EQ(s.at(100), 1);
  s.decay = Decay::wsd, s.decay_steps = 21;
  EXPECT_DOUBLE_EQ(s.at(89), 1);
  EXPECT_NEAR(s.at(100), 0.55, 1e-12);
  EXPECT_NEAR(s.at(110), 0.1, 1e-12);
}

TEST(LossScalerTest, HalvesOnOverflowAndGrowsWhenAllIsWell) {
  LossScaler s(true, 1024, 3);
  s.update(true);
  EXPECT_EQ(s.scale(), 512);
  for (int i = 0; i < 3; ++i) s.update(false);
  EXPECT_EQ(s.scale(), 1024);
  LossScaler off(false);
  off.update(true);
  off.restore(4096, 3);
  EXPECT_EQ(off.scale(), 1);
  s.restore(4096, 2);
  s.update(false);
  EXPECT_EQ(s.scale(), 8192);
  s.restore(0, 0);
  EXPECT_EQ(s.scale(), 8192) << "the run before had no scaler";
}

TEST(GradNormTest, SumsOverParametersAndNamesTheBrokenOne) {
  OneRankParams rank;
  std::vector<Owned> owned = rank.owned();
  Param &a = *rank.params[1], &b = *rank.params[3];
  a.grad.data<float>()[0] = 3, b.grad.data<float>()[2] = 4;
  EXPECT_DOUBLE_EQ(GradNormMeter().measure(rank.rank.context, owned).squares, 25);
  owned[0].is_counted = false;  // another replica counts it
  EXPECT_DOUBLE_EQ(GradNormMeter().measure(rank.rank.context, owned).squares, 0);
  b.grad.data<float>()[0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(GradNormMeter().measure(rank.rank.context, owned).not_finite, &b);
}

}  // namespace
}  // namespace weft
