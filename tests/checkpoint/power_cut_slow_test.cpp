// Power cuts, ten thousand of them.
#include "checkpoint/power_cut_cases.h"

namespace weft {
namespace {

TEST(PowerCut, TenThousandDisksLoseNoPromisedCheckpoint) {
  int num_newer = 0;
  for (uint32_t seed = 2; seed < 12; ++seed) num_newer += try_power_cuts(1000, seed);
  EXPECT_GT(num_newer, 100);
}

}  // namespace
}  // namespace weft
